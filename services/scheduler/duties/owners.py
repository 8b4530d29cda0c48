"""Forgets owners that have been dead for an hour and hold nothing."""

from __future__ import annotations

from collections.abc import Mapping

from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.ticker import PeriodicDuty

KEEP_MS = 3_600_000


class ForgetOwners(PeriodicDuty):
    """The duty that removes the rows of dead owners; they are kept for a while for whoever looks into a crash."""

    name = "owners"
    period_s = 60.0

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_once(self) -> Mapping[str, int]:
        """Remove them. Raises Unavailable."""
        async with self._database.connection() as connection:
            tag: str = await connection.execute(queries("scheduler")["forget_owners"], KEEP_MS)
        return {"forgotten": int(tag.rsplit(" ", 1)[-1])}
