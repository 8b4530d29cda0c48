"""Marks about children (rulings C12): an ended child resumes who waits for it, an ended parent cancels its children."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.store.database import Database
from services.core.store.queries import queries

BATCH = 500


@dataclass(frozen=True, slots=True)
class Applied:
    """How many runs got the end of a child, and how many were cancelled with their parent."""

    resumed: int
    cancelled: int


class RunMarks:
    """Applies the marks that ends of runs have left, whoever ended them."""

    def __init__(self, database: Database, hints: Hints, traces: RunTraces) -> None:
        self._database = database
        self._hints = hints
        self._gates = Gates(database, hints)
        self._traces = traces

    async def apply(self, min_age_ms: int = 0) -> Applied:
        """Apply up to `BATCH` marks that are at least so old. Raises Unavailable."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("engine")["apply_marks"], min_age_ms, BATCH, self._traces.enabled)
        ended = [row for row in rows if row["cancelled"]]
        await self._gates.grant((row["ga"], row["gb"]) for row in rows)
        self._hints.ready([row["run"] for row in rows if not row["cancelled"] and row["owner"] is None])
        self._hints.delivered((row["run"], row["owner"]) for row in rows if not row["cancelled"])
        holders: dict[int | None, list[UUID]] = defaultdict(list)
        for row in ended:
            holders[row["owner"]].append(row["run"])
        for owner, runs in holders.items():
            self._hints.cancelled(owner, runs)
        self._traces.delivered((row["tenant"], row["run"], row["resolved"]) for row in rows)
        self._traces.ended("cancelled", [(row["tenant"], row["run"]) for row in ended])
        return Applied(len(rows) - len(ended), len(ended))

    async def cascade(self) -> None:
        """Apply fresh marks until nobody else is cancelled: children of children too. Raises Unavailable."""
        while (await self.apply()).cancelled:
            pass
