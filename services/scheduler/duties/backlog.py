"""Measures what waits in the whole engine, for its metrics: one scheduler does, by one cheap statement."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg

from services.core.runtime.metric_table import MARKS_AGE, QUEUE_AGE, QUEUE_LENGTH, TIMERS_OVERDUE
from services.core.runtime.metrics import Metrics, Read
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.partitions import Partitions

MOST = 10_000

_PERIOD_S = 5.0
_LOOK_S = 1.0
_PARTITION = 0
"""Who has it measures."""


class Backlog:
    """The duty that measures. A scheduler that is not the one tells nothing, rather than what was true once."""

    name = "backlog"

    def __init__(self, database: Database, partitions: Partitions, metrics: Metrics) -> None:
        self._database = database
        self._partitions = partitions
        self._seen: asyncpg.Record | None = None
        metrics.watch(QUEUE_AGE, self._seconds("queue_ms"), "any")
        metrics.watch(QUEUE_AGE, self._seconds("pool_ms"), "workers")
        metrics.watch(QUEUE_LENGTH, self._number("queued"), "any")
        metrics.watch(QUEUE_LENGTH, self._number("pooled"), "workers")
        metrics.watch(TIMERS_OVERDUE, self._seconds("overdue_ms"))
        metrics.watch(MARKS_AGE, self._seconds("mark_ms"))

    async def run_once(self) -> Mapping[str, int]:
        """Measure, if it is this scheduler's to do. Raises Unavailable."""
        seen = None
        try:
            if self._partitions.owns(_PARTITION):
                async with self._database.connection() as connection:
                    seen = await connection.fetchrow(queries("scheduler")["backlog"], MOST)
        finally:
            self._seen = seen
        return {}

    async def idle(self) -> None:
        """A period. A scheduler that does not measure looks sooner whether it is to: the one may just have died."""
        await asyncio.sleep(_LOOK_S if self._seen is None else _PERIOD_S)

    def _number(self, column: str) -> Read:
        return lambda: None if self._seen is None else float(self._seen[column])

    def _seconds(self, column: str) -> Read:
        return lambda: None if self._seen is None else self._seen[column] / 1_000
