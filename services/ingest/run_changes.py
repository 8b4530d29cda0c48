"""Waiting for runs to change, for those who watch them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from services.core.runtime.clock import Clock
from services.core.store.run_changes import RunChangeReader
from services.ingest.looking import Looking, Waiter


class RunChanges(Looking):
    """Tells callers when active runs have changed. A run that changes all the time is told of ten times a second."""

    name = "run-changes"

    def __init__(self, reader: RunChangeReader, clock: Clock) -> None:
        super().__init__(clock, first_s=0.1, last_s=0.5)
        self._reader = reader

    async def wait(self, run: UUID, mark: int, timeout_s: float) -> None:
        """Returns when the run has another mark, has ended or the time has passed; at once in a drain."""
        await self._wait(run, mark, timeout_s)

    async def over(self, waiters: Sequence[Waiter]) -> list[Waiter]:
        """See `Looking`."""
        marks = await self._reader.marks(list({waiter.run for waiter in waiters}))
        return [waiter for waiter in waiters if marks.get(waiter.run) != waiter.mark]
