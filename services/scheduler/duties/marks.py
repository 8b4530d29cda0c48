"""Carries out marks that whoever wrote them did not (rulings C12): ends and cancels of children.

Only kinds that this release knows are touched: a newer one's marks are left to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from services.core.engine.hints import Hints
from services.core.engine.run_marks import BATCH, RunMarks
from services.core.engine.run_traces import RunTraces
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.duties.glance import woken

MIN_AGE_MS = 1_000

_MAX_ROUNDS = 40
_COUNTED = _MAX_ROUNDS * BATCH + 1


class Marks:
    """The duty that sweeps marks. `nudge` after ends that a duty itself made: nobody else carries out their marks."""

    name = "marks"

    def __init__(self, database: Database, hints: Hints, traces: RunTraces | None = None) -> None:
        self._database = database
        self._marks = RunMarks(database, hints, traces or RunTraces.off(database))
        self._woken = asyncio.Event()
        self._nudged = False

    def wake(self) -> None:
        """There are marks."""
        self._woken.set()

    def nudge(self) -> None:
        """Look at once, at marks of any age."""
        self._nudged = True
        self._woken.set()

    async def idle(self) -> None:
        """Until woken or nudged."""
        await woken(self._woken)

    async def run_once(self) -> Mapping[str, int]:
        """Apply what is there, in batches. Raises Unavailable."""
        min_age_ms = 0 if self._nudged else MIN_AGE_MS
        self._nudged = False
        self._woken.clear()
        resumed = cancelled = 0
        left: int | None = None
        for _ in range(_MAX_ROUNDS):
            applied = await self._marks.apply(min_age_ms)
            async with self._database.connection() as connection:
                before = left
                left = await connection.fetchval(queries("scheduler")["count_marks"], min_age_ms, _COUNTED)
            cancelled += applied.cancelled
            resumed += applied.resumed
            if applied.cancelled:
                min_age_ms = 0  # children of children: their marks are a moment old
            elif not left or left == before:  # what is left waits for locks of others, or a retried child's second end
                break
        return {"resumed": resumed, "cancelled": cancelled}
