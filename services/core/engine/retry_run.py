"""Retry an ended run: it goes on from where it stopped (engine section 3)."""

from __future__ import annotations

from uuid import UUID

from services.core.domain.errors import Conflict
from services.core.domain.gate_rule import NO_GATES, RunGates
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates, gates_of
from services.core.engine.hints import Hints
from services.core.engine.retrying import after_commit, retrying
from services.core.engine.starts import cancel_waits
from services.core.engine.stored_run import stored_run
from services.core.store.batch import columns
from services.core.store.commit_item import WaitRow
from services.core.store.database import Database
from services.core.store.projects import project_deleted, run_is_deleted
from services.core.store.queries import queries


class RunRetrier:
    """Retries runs that failed, were cancelled or timed out."""

    def __init__(self, database: Database, definitions: DefinitionsCache, hints: Hints) -> None:
        self._database = database
        self._definitions = definitions
        self._hints = hints
        self._gates = Gates(database, hints)

    async def retry(self, tenant: int, run: UUID) -> None:
        """Let it go on. Attempts, the clock of its timeout and non-determinism strikes begin anew.

        Raises NotFound, Conflict (it is active, or completed, or its project is being deleted), Unavailable.
        """
        gates = await retrying(lambda attempt: self._once(tenant, run, again=attempt > 0))
        if gates != NO_GATES:
            await after_commit(self._gates.grant([gates.pair]))
        else:
            self._hints.ready([run])

    async def _once(self, tenant: int, run: UUID, *, again: bool) -> RunGates:
        async with self._database.transaction() as connection:
            stored = await stored_run(connection, self._definitions, tenant, run)
            gates = gates_of(stored.entry, stored.trigger())
            definition = stored.entry.definition
            row = await connection.fetchrow(
                queries("engine")["retry"], tenant, run, definition.max_attempts, definition.timeout_ms, *gates
            )
            if row is None and await run_is_deleted(connection, tenant, run):
                raise project_deleted("the project of this run is being deleted")
            if row is None and not (again and stored.status is None):
                state = stored.status or "active"
                raise Conflict(f"only a failed, cancelled or timed out run can be retried; this one is {state}")
            if row is not None:
                waits = cancel_waits(stored.entry, run, stored.trigger())
                if waits:
                    await connection.execute(queries("engine")["open_waits"], *columns(waits, len(WaitRow._fields)))
            return gates
