"""Folds the usage that commits have counted into the tenants' tables (rulings C27)."""

from __future__ import annotations

from collections.abc import Mapping

from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.ticker import PeriodicDuty

BATCH = 5_000


class FoldUsage(PeriodicDuty):
    """The duty that adds up usage; a delta counts exactly once, whatever crashes."""

    name = "usage"
    period_s = 5.0

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_once(self) -> Mapping[str, int]:
        """Fold all there is, in batches. Raises Unavailable."""
        total = 0
        while True:
            async with self._database.connection() as connection:
                folded: int = await connection.fetchval(queries("scheduler")["fold_usage"], BATCH)
            total += folded
            if folded < BATCH:
                return {"folded": total}
