"""Hints again at runs that wait in the queue although nothing is in the stream: their hint was lost (rulings P6).

With a long backlog the stream has enough to do, and executors with room find the rest by themselves: no storm of hints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from services.core.engine.hints import Hints
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.ticker import PeriodicDuty

MIN_AGE_MS = 1_000
MAX_PENDING = 1_000
BATCH = 1_000

Pending = Callable[[], Awaitable[int | None]]
"""Hints in the stream that nobody has taken; None while NATS cannot tell."""


class Rehint(PeriodicDuty):
    """The duty that repeats lost ready hints."""

    name = "rehint"
    period_s = 1.0

    def __init__(self, database: Database, hints: Hints, pending: Pending) -> None:
        self._database = database
        self._hints = hints
        self._pending = pending

    async def run_once(self) -> Mapping[str, int]:
        """Hint at the runs that have waited longest. Raises Unavailable."""
        await self._unpool()
        pending = await self._pending()
        if pending is None or pending >= MAX_PENDING:
            return {"hinted": 0}
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("scheduler")["stale_queued"], MIN_AGE_MS, BATCH)
        runs = [row[0] for row in rows]
        self._hints.ready(runs)
        return {"hinted": len(runs)}

    async def _unpool(self) -> None:
        """Runs that only workers were to serve, and whose project has an endpoint by now, are anybody's."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("scheduler")["unpool"], BATCH)
        self._hints.ready([row[0] for row in rows])
