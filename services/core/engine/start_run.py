"""Start a run over the API (engine section 3, `POST …/runs`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

import asyncpg

from services.core.domain.errors import Conflict, NotFound
from services.core.domain.matching import event_value
from services.core.engine.definitions import DefinitionsCache, WorkflowEntry
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.retrying import after_commit, retrying
from services.core.engine.run_traces import RunTraces
from services.core.engine.starts import cancel_waits, insert_starts, start_row
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query

API_START = "runr/api.start"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What is to be started. `data` is JSON text; at most one of `delay_ms` and `at_ms` (unix) is set."""

    tenant: int
    project: str
    workflow: str
    data: str = "{}"
    idempotency_key: str | None = None
    test: bool = False
    delay_ms: int | None = None
    at_ms: int | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The run, and whether this call started it (False: the idempotency key led to it)."""

    run: UUID
    is_new: bool


class RunStarter:
    """Starts runs: one transaction, then a hint."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        hints: Hints,
        ids: UlidFactory,
        traces: RunTraces | None = None,
    ) -> None:
        self._database = database
        self._spans = (traces or RunTraces.off(database)).spans
        self._gates = Gates(database, hints)
        self._definitions = definitions
        self._hints = hints
        self._ids = ids

    async def start(self, request: StartRequest) -> Started:
        """Start it. Raises NotFound, Conflict (paused or archived), Unavailable (nothing was started, or ask again)."""
        run, event = self._ids.new(), self._ids.new()
        begun_ns = self._spans.now_ns()
        placed = replace(request, trace=self._spans.place(request.trace))
        started, gate = await retrying(lambda attempt: self._once(placed, run, event, again=attempt > 0))
        if started.is_new:
            self._spans.started(run, request.workflow, trace=placed.trace, parent=request.trace, begun_ns=begun_ns)
        if started.is_new and request.delay_ms is None and request.at_ms is None:
            if gate is None:
                self._hints.ready([started.run], traceparent=request.trace)
            else:
                await after_commit(self._gates.grant([gate]))
        return started

    async def _once(self, request: StartRequest, run: UUID, event: UUID, *, again: bool) -> tuple[Started, int | None]:
        """What was started, and the gate before which it stands."""
        async with self._database.transaction() as connection:
            stored = tenant_query("engine", "stored_runs", request.tenant)
            if again and await connection.fetchval(stored, [run]) is not None:
                return Started(run, True), None  # the answer of the first attempt was lost after its commit
            entry = await self._entry(connection, request)
            ts = await connection.fetchval(queries("engine")["now_ms"])
            trigger = event_value(id=ulid_text(event), name=API_START, data=request.data, ts=ts)
            row = start_row(
                entry,
                run=run,
                source="api",
                event=event,
                event_name=API_START,
                event_ts=ts,
                event_data=request.data,
                trigger=trigger,
                idempotency_key=request.idempotency_key,
                test=request.test,
                tags=request.tags,
                trace=request.trace,
                delay_ms=request.delay_ms,
                at_ms=request.at_ms,
            )
            ((found, is_new),) = await insert_starts(connection, [row], cancel_waits(entry, run, trigger))
            return Started(found, is_new), row.ga

    async def _entry(self, connection: asyncpg.Connection, request: StartRequest) -> WorkflowEntry:
        definitions = await self._definitions.get(connection, request.tenant)
        project = definitions.project_by_slug.get(request.project)
        if project is None:
            raise NotFound(f"there is no project {request.project!r}")
        entry = definitions.by_name.get((project.id, request.workflow))
        if entry is None:
            raise NotFound(f"project {request.project!r} has no workflow {request.workflow!r}")
        if entry.archived or not entry.is_active:
            state = "archived" if entry.archived else "paused"
            raise Conflict(f"workflow {request.workflow!r} is {state}: it starts no runs", reason="WORKFLOW_INACTIVE")
        return entry
