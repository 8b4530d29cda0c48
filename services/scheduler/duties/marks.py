"""Carries out marks that whoever wrote them did not (rulings C12): ends and cancels of children.

Only kinds that this release knows are touched: a newer one's marks are left to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.duties.timeout import notify_owners

BATCH = 500
MIN_AGE_MS = 1_000

_PERIOD_S = 1.0
_MAX_ROUNDS = 40
_COUNTED = _MAX_ROUNDS * BATCH + 1


class Marks:
    """The duty that sweeps marks. `nudge` after ends that a duty itself made: nobody else carries out their marks."""

    name = "marks"

    def __init__(self, database: Database, hints: Hints, traces: RunTraces | None = None) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._gates = Gates(database, hints)
        self._hints = hints
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Look at once, at marks of any age."""
        self._nudged.set()

    async def idle(self) -> None:
        """A second, or until nudged."""
        try:
            async with asyncio.timeout(_PERIOD_S):
                await self._nudged.wait()
        except TimeoutError:
            return

    async def run_once(self) -> Mapping[str, int]:
        """Apply what is there, in batches. Raises Unavailable."""
        min_age_ms = 0 if self._nudged.is_set() else MIN_AGE_MS
        self._nudged.clear()
        resumed = cancelled = 0
        left: int | None = None
        for _ in range(_MAX_ROUNDS):
            async with self._database.connection() as connection:
                rows = await connection.fetch(
                    queries("scheduler")["apply_marks"], min_age_ms, BATCH, self._traces.enabled
                )
                before = left
                left = await connection.fetchval(queries("scheduler")["count_marks"], min_age_ms, _COUNTED)
            await self._gates.grant(gate for row in rows for gate in (row["ga"], row["gb"]))
            ended = [row for row in rows if row["cancelled"]]
            notify_owners(self._hints, ((row["owner"], row["run"]) for row in ended))
            self._traces.delivered((row["tenant"], row["run"], row["resolved"]) for row in rows)
            self._traces.ended((row["tenant"], row["run"]) for row in ended)
            self._hints.ready([row["run"] for row in rows if not row["cancelled"] and row["owner"] is None])
            cancelled += len(ended)
            resumed += len(rows) - len(ended)
            if ended:
                min_age_ms = 0  # children of children: their marks are a moment old
            elif not left or left == before:  # what is left waits for locks of others, or a retried child's second end
                break
        return {"resumed": resumed, "cancelled": cancelled}
