"""Measures what waits in the whole engine when somebody looks at the metrics: one scheduler does, by one statement."""

from __future__ import annotations

import asyncio

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.metric_table import MARKS_AGE, QUEUE_AGE, QUEUE_LENGTH, TIMERS_OVERDUE
from services.core.runtime.metrics import Metrics, Read
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.partitions import Partitions

MOST = 10_000
KEPT_S = 1.0
"""However many look, no more often."""

_LIMIT_S = 2.0
_PARTITION = 0
"""Who has it measures."""


class Backlog:
    """What waits. A scheduler that is not the one tells nothing, rather than what was true once."""

    def __init__(self, database: Database, partitions: Partitions, metrics: Metrics, clock: Clock) -> None:
        self._database = database
        self._partitions = partitions
        self._clock = clock
        self._seen: asyncpg.Record | None = None
        self._kept_until = clock.monotonic()
        self._one_by_one = asyncio.Lock()
        metrics.ask(self.measure)
        metrics.watch(QUEUE_AGE, self._seconds("queue_ms"), "any")
        metrics.watch(QUEUE_AGE, self._seconds("pool_ms"), "workers")
        metrics.watch(QUEUE_LENGTH, self._number("queued"), "any")
        metrics.watch(QUEUE_LENGTH, self._number("pooled"), "workers")
        metrics.watch(TIMERS_OVERDUE, self._seconds("overdue_ms"))
        metrics.watch(MARKS_AGE, self._seconds("mark_ms"))

    async def measure(self) -> None:
        """Measure, if it is this scheduler's to do. Nothing is told while the database does not answer in time."""
        async with self._one_by_one:
            if self._seen is not None and self._clock.monotonic() < self._kept_until:
                return
            try:
                async with asyncio.timeout(_LIMIT_S):
                    self._seen = await self._look() if self._partitions.owns(_PARTITION) else None
            except (Unavailable, TimeoutError):
                self._seen = None
            self._kept_until = self._clock.monotonic() + KEPT_S

    async def _look(self) -> asyncpg.Record | None:
        async with self._database.connection() as connection:
            return await connection.fetchrow(queries("scheduler")["backlog"], MOST)

    def _number(self, column: str) -> Read:
        return lambda: None if self._seen is None else float(self._seen[column])

    def _seconds(self, column: str) -> Read:
        return lambda: None if self._seen is None else self._seen[column] / 1_000
