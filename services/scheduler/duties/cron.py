"""Fires cron triggers at their ticks, and forgets ticks that fired long ago (engine section 9).

Ticks are at whole minutes. So the duty looks at each whole second of the database's clock: a tick is some milliseconds
late, whoever declared its trigger and however shortly before, and what a scheduler that died has left is found by the
others within the second. A look is one read of an index's first entry, however many triggers there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from services.core.engine.fire_due import DueSchedules
from services.core.runtime.clock import Clock
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.core.store.schedules import database_now, forget_fires
from services.scheduler.ticker import PeriodicDuty

_SAMPLE_S = 5.0
_SECOND_MS = 1_000
_FORGET_BATCH = 1_000


class Cron:
    """The duty that fires cron triggers."""

    name = "cron"

    def __init__(self, database: Database, due: DueSchedules, clock: Clock, database_clock: DatabaseClock) -> None:
        self._database = database
        self._due = due
        self._clock = clock
        self._theirs = database_clock
        self._sample_at = clock.monotonic()

    async def run_once(self) -> Mapping[str, int]:
        """Fire what is due. Raises Unavailable."""
        await self._learn()
        fired = await self._due.fire()
        return {"due": fired.due, "started": fired.started, "failed": fired.failed}

    async def idle(self) -> None:
        """Until the database's next whole second."""
        await asyncio.sleep((_SECOND_MS - self._theirs.certain_ms() % _SECOND_MS) / 1_000)

    async def _learn(self) -> None:
        if self._clock.monotonic() < self._sample_at:
            return
        async with self._database.connection() as connection:
            await self._theirs.sample(connection)
        self._sample_at = self._clock.monotonic() + _SAMPLE_S


class ForgetFires(PeriodicDuty):
    """The duty that forgets ticks once runs of their age are pruned: a backfill may then start them again."""

    name = "forget_fires"
    period_s = 600.0

    def __init__(self, database: Database, run_days: int) -> None:
        self._database = database
        self._keep = timedelta(days=run_days)

    async def run_once(self) -> Mapping[str, int]:
        """Forget in small batches. Raises Unavailable."""
        forgotten = 0
        while True:
            async with self._database.connection() as connection:
                before = await database_now(connection) - self._keep
                count = await forget_fires(connection, before, _FORGET_BATCH)
            forgotten += count
            if count < _FORGET_BATCH:
                return {"forgotten": forgotten}
