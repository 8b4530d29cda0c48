"""Replay a run: a new run of the same event, from the start or from a step (engine section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from services.core.domain.errors import Conflict, InvalidInput
from services.core.domain.matching import event_value
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import NO_PAIR, Gates, Pair
from services.core.engine.hints import Hints
from services.core.engine.retrying import after_commit, retrying
from services.core.engine.run_traces import RunTraces
from services.core.engine.starts import cancel_waits, insert_starts, start_row
from services.core.engine.stored_run import StoredRun, stored_run
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What to replay. `from_step`: the results before that step are kept. `data` (JSON text) replaces the event's."""

    tenant: int
    run: UUID
    from_step: str | None = None
    data: str | None = None
    trace: str | None = None


class RunReplayer:
    """Replays runs; the original stays as it is."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        hints: Hints,
        ids: UlidFactory,
        traces: RunTraces | None = None,
    ) -> None:
        self._database = database
        traces = traces or RunTraces.off(database)
        self._spans = traces.spans
        self._meter = traces.meter
        self._definitions = definitions
        self._hints = hints
        self._ids = ids
        self._gates = Gates(database, hints)

    async def replay(self, request: ReplayRequest) -> UUID:
        """The new run. Raises NotFound, Conflict (workflow paused or archived), InvalidInput (no such step),
        Unavailable.
        """
        run = self._ids.new()
        begun_ns = self._spans.now_ns()
        placed = replace(request, trace=self._spans.place(request.trace))
        workflow, gates = await retrying(lambda attempt: self._once(placed, run, again=attempt > 0))
        self._meter.started("replay")
        self._spans.started(run, workflow, trace=placed.trace, parent=request.trace, begun_ns=begun_ns)
        if gates == NO_PAIR:
            self._hints.ready([run], traceparent=request.trace)
        else:
            await after_commit(self._gates.grant([gates]))
        return run

    async def _once(self, request: ReplayRequest, run: UUID, *, again: bool) -> tuple[str, Pair]:
        """The workflow's name, and the gates before which the new run stands."""
        async with self._database.transaction() as connection:
            stored = await stored_run(connection, self._definitions, request.tenant, request.run)
            stored_runs = tenant_query("engine", "stored_runs", request.tenant)
            if again and await connection.fetchval(stored_runs, [run]) is not None:
                return stored.entry.name, NO_PAIR
            before = None
            if request.from_step is not None:
                place = tenant_query("engine", "step_place", request.tenant)
                before = await connection.fetchval(place, request.run, request.from_step)
                if before is None:
                    raise InvalidInput.of("from_step", f"the run has no stored result of a step {request.from_step!r}")
            row, waits = replay_rows(stored, run, data=request.data, trace=request.trace)
            await insert_starts(connection, [row], waits)
            if before:
                await connection.fetchval(queries("engine")["copy_steps"], request.tenant, request.run, run, before)
            return stored.entry.name, (row.ga, row.gb)


def replay_rows(
    stored: StoredRun, run: UUID, *, data: str | None = None, trace: str | None = None
) -> tuple[StartRow, list[WaitRow]]:
    """What starts `run` as a replay of a stored one; `data` None: with the same data. Raises Conflict."""
    entry = stored.entry
    if entry.archived or not entry.is_active:
        state = "archived" if entry.archived else "paused"
        raise Conflict(f"workflow {entry.name!r} is {state}: it starts no runs", reason="WORKFLOW_INACTIVE")
    trigger = event_value(
        id=ulid_text(stored.event),
        name=stored.event_name,
        data=stored.data if data is None else data,
        ts=stored.event_ts,
    )
    row = start_row(
        entry,
        run=run,
        source="replay",
        event=stored.event,
        event_name=stored.event_name,
        event_ts=stored.event_ts,
        event_data=stored.own_data if data is None else data,
        trigger=trigger,
        test=stored.test,
        trace=trace,
    )
    # A replay is asked for by name: it is never answered with an existing run.
    return row._replace(idem=None, replay_of=stored.id, tags=stored.tags), cancel_waits(entry, run, trigger)
