"""Waiting for runs to end: a short run is told of at once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from services.core.runtime.clock import Clock
from services.core.store.runs import RunReader
from services.ingest.looking import Looking, Waiter


class RunEnds(Looking):
    """Tells callers when runs have ended."""

    name = "run-ends"

    def __init__(self, reader: RunReader, clock: Clock) -> None:
        super().__init__(clock, first_s=0.02, last_s=0.5)
        self._reader = reader

    async def wait(self, run: UUID, timeout_s: float) -> None:
        """Returns when the run has ended or the time has passed, at once in a drain: the caller looks for itself."""
        await self._wait(run, None, timeout_s)

    async def over(self, waiters: Sequence[Waiter]) -> list[Waiter]:
        """See `Looking`."""
        ended = await self._reader.ended_among(list({waiter.run for waiter in waiters}))
        return [waiter for waiter in waiters if waiter.run in ended]
