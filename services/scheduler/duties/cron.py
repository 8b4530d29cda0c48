"""Fires cron triggers at their ticks, and forgets ticks that fired long ago (engine section 9).

Ticks are at whole minutes, and the glance looks at each whole second of the database's clock: a tick is some
milliseconds late, whoever declared its trigger and however shortly before, and what a scheduler that died has left is
found by the others within the second. A look is one read of an index's first entry, however many triggers there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from services.core.engine.fire_due import DueSchedules
from services.core.store.database import Database
from services.core.store.schedules import database_now, forget_fires
from services.scheduler.ticker import PeriodicDuty

_FORGET_BATCH = 1_000


class Cron(PeriodicDuty):
    """The duty that fires cron triggers."""

    name = "cron"
    period_s = 1.0

    def __init__(self, due: DueSchedules) -> None:
        self._due = due

    async def run_once(self) -> Mapping[str, int]:
        """Fire what is due. Raises Unavailable."""
        fired = await self._due.fire()
        return {"due": fired.due, "started": fired.started, "failed": fired.failed}


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
