"""Ends runs whose own timeout is over (engine section 5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.ticker import PeriodicDuty

BATCH = 500


class Timeout(PeriodicDuty):
    """The duty that ends overdue runs. `ended` is called after such ends: they leave marks."""

    name = "timeout"
    period_s = 1.0

    def __init__(
        self, database: Database, hints: Hints, ended: Callable[[], None], traces: RunTraces | None = None
    ) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._gates = Gates(database, hints)
        self._hints = hints
        self._ended = ended

    async def run_once(self) -> Mapping[str, int]:
        """End what is overdue, in batches, and tell the holders to stop. Raises Unavailable."""
        total = 0
        while True:
            async with self._database.connection() as connection:
                rows = await connection.fetch(queries("scheduler")["expire"], BATCH)
            total += len(rows)
            await self._gates.grant((row["ga"], row["gb"]) for row in rows)
            notify_owners(self._hints, ((row["owner"], row["run"]) for row in rows))
            self._traces.ended("timed_out", [(row["tenant"], row["run"]) for row in rows])
            if rows:
                self._ended()
            if len(rows) < BATCH:
                return {"timed_out": total}


def notify_owners(hints: Hints, ended: Iterable[tuple[int | None, UUID]]) -> None:
    """Tell each holder which of its runs have ended under it."""
    by_owner: dict[int, list[UUID]] = defaultdict(list)
    for owner, run in ended:
        if owner is not None:
            by_owner[owner].append(run)
    for owner, runs in by_owner.items():
        hints.cancelled(owner, runs)
