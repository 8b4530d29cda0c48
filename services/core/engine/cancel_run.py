"""Cancel active runs: the API's cancel (engine section 3)."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from services.core.domain.errors import Conflict, NotFound
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.retrying import after_commit, retrying
from services.core.engine.run_marks import RunMarks
from services.core.engine.run_traces import RunTraces
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query


class RunCanceller:
    """Cancels runs. The row lock decides against a commit in flight: what committed first stays (rulings C1)."""

    def __init__(self, database: Database, hints: Hints, traces: RunTraces | None = None) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._gates = Gates(database, hints)
        self._marks = RunMarks(database, hints, self._traces)
        self._hints = hints

    async def cancel(self, tenant: int, run: UUID, *, keep_children: bool = False) -> None:
        """Cancel it, and its active children unless `keep_children`. Raises NotFound, Conflict (it has ended),
        Unavailable.
        """
        ended = await retrying(lambda attempt: self._once(tenant, run, keep_children, again=attempt > 0))
        if ended is not None:
            self._hints.cancelled(ended["owner"], [run])
            await after_commit(self._gates.grant([(ended["ga"], ended["gb"])]))
            self._traces.ended("cancelled", [(tenant, run)])
            await after_commit(self._marks.cascade())

    async def _once(self, tenant: int, run: UUID, keep_children: bool, *, again: bool) -> asyncpg.Record | None:
        async with self._database.transaction() as connection:
            locked = await connection.fetchrow(queries("engine")["lock_runs"], tenant, [run])
            if locked is None:
                status = await connection.fetchval(tenant_query("engine", "end_of", tenant), run)
                if again and status == "cancelled":
                    return None
                if status is not None:
                    raise Conflict(f"the run has ended already: {status}", reason="RUN_ENDED")
                raise NotFound("there is no such run")
            ended = await connection.fetchrow(queries("engine")["finish"], [run], ["cancelled"], [None], [None])
            if keep_children:
                await connection.execute(queries("engine")["keep_children"], run)
            return ended
