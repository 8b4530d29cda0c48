"""Takes runs back from owners that are dead: each is queued with an attempt `WorkerLost`, ends with its last one, or is
kept a moment for the worker that executes it (`rt.rescue_v1`).

Any number of processes may do it at once, each run is rescued once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.store.database import Database
from services.core.store.queries import queries

log = logging.getLogger(__name__)

BATCH = 500


@dataclass(frozen=True, slots=True)
class Rescued:
    """How many runs are in the queue again, have failed with their last attempt, or are kept for their workers."""

    rescued: int = 0
    failed: int = 0
    parked: int = 0


class RunRescuer:
    """Rescues every run whose owner is dead or unknown. `ended` is called when runs ended by it."""

    def __init__(
        self, database: Database, hints: Hints, traces: RunTraces, *, ended: Callable[[], None] | None = None
    ) -> None:
        self._database = database
        self._hints = hints
        self._traces = traces
        self._ended = ended

    async def rescue(self) -> Rescued:
        """All that there are. Raises Unavailable."""
        rescued = failed = parked = 0
        while True:
            async with self._database.connection() as connection:
                rows = await connection.fetch(queries("scheduler")["rescue"], BATCH)
            for row in rows:
                if row["due_ms"] is not None:  # kept for the worker that executes it
                    self._hints.timers(row["run"], row["due_ms"])
            parked += sum(row["due_ms"] is not None for row in rows)
            lost = [row for row in rows if row["due_ms"] is None]
            ready = [row["run"] for row in lost if not row["ended"]]
            self._hints.ready(ready)
            self._traces.lost((row["tenant"], row["run"]) for row in lost)
            self._traces.ended("failed", [(row["tenant"], row["run"]) for row in rows if row["ended"]])
            rescued += len(ready)
            failed += len(lost) - len(ready)
            if len(lost) > len(ready) and self._ended is not None:
                self._ended()
            if len(rows) < BATCH:
                break
        if rescued or failed or parked:
            self._traces.meter.recovered(queued=rescued, failed=failed, parked=parked)
            log.warning("rescued runs of dead owners", extra={"rescued": rescued, "failed": failed, "parked": parked})
        return Rescued(rescued, failed, parked)


class Predecessors:
    """The processes that this one replaces: their supervisor has seen them end, so nobody needs to wait for silence."""

    def __init__(self, database: Database, rescuer: RunRescuer, replaces: Sequence[UUID]) -> None:
        self._database = database
        self._rescuer = rescuer
        self._replaces = list(replaces)

    async def bury(self) -> None:
        """Declare their owners dead and rescue their runs. Raises Unavailable; then it is to be called again."""
        if not self._replaces:
            return
        async with self._database.connection() as connection:
            buried = await connection.fetchval(queries("scheduler")["bury_processes"], self._replaces)
        if buried:
            log.warning("owners of replaced processes are dead", extra={"owners": buried})
        # Also with none to bury: whoever has, may not have rescued all before it died itself.
        await self._rescuer.rescue()
        self._replaces.clear()
