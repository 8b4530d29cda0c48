"""The commit of starts: one statement for all of a batch, which also tells whether the definitions that they were
decided by are those that hold. What cannot be stored, or has to wait, is found by halves and harms no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from services.core.domain.errors import Conflict, DomainError, NotFound, Unavailable
from services.core.domain.matching import event_value
from services.core.engine.definitions import DefinitionsCache, TenantDefinitions, WorkflowEntry
from services.core.engine.gates import Gates, Pair
from services.core.engine.group_commit import Waiting
from services.core.engine.hints import Hints
from services.core.engine.isolate import LOCK_MS, PATIENT_LOCK_MS, Busy, id_is_taken
from services.core.engine.retrying import after_commit
from services.core.engine.run_traces import RunTraces
from services.core.engine.start_request import API_START, FreshRun, Started, StartRequest
from services.core.engine.starts import cancel_waits, start_row
from services.core.runtime.ids import ulid_text, ulid_unix_ms, uuid_of
from services.core.store.batch import columns, narrowed
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.database import Database
from services.core.store.queries import queries

log = logging.getLogger(__name__)

_MOVES = 5
_START = len(StartRow._fields)
_WAIT = len(WaitRow._fields)


@dataclass(slots=True, eq=False)
class Start:
    """A start on its way. `trace` is that of the run."""

    request: StartRequest
    run: UUID
    event: UUID
    trace: str | None
    begun_ns: int

    @property
    def again(self) -> bool:
        """Whether an earlier attempt may have carried it out."""
        return self.request.again

    @property
    def size(self) -> int:
        """About how many bytes travel with it."""
        return len(self.request.data) + 500


Item = Waiting[Start, Started]


@dataclass(slots=True)
class _Rows:
    """Starts as the door takes them, with the versions of definitions that must hold for them."""

    items: list[Item] = field(default_factory=list)
    starts: list[StartRow] = field(default_factory=list)
    waits: list[WaitRow] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)

    def add(self, item: Item, entry: WorkflowEntry, version: int) -> None:
        """A start of `entry`, as its tenant's definitions of this version have it."""
        start, request = item.item, item.item.request
        ts, trigger = _trigger(start, entry)
        self.items.append(item)
        self.versions[entry.tenant] = version
        self.starts.append(
            start_row(
                entry,
                run=start.run,
                source="api",
                event=start.event,
                event_name=API_START,
                event_ts=ts,
                event_data=request.data,
                trigger=trigger,
                idempotency_key=request.idempotency_key,
                test=request.test,
                tags=request.tags,
                trace=start.trace,
                delay_ms=request.delay_ms,
                at_ms=request.at_ms,
            )
        )
        self.waits += cancel_waits(entry, start.run, trigger)


class StartBatches:
    """Commits batches of starts."""

    def __init__(self, database: Database, definitions: DefinitionsCache, hints: Hints, traces: RunTraces) -> None:
        self._database = database
        self._definitions = definitions
        self._hints = hints
        self._gates = Gates(database, hints)
        self._spans = traces.spans
        self._meter = traces.meter
        self._granting: set[asyncio.Task[None]] = set()

    async def once(self, batch: Sequence[Item], *, again: bool, patient: bool) -> None:
        """One attempt: see `isolate.Once`."""
        async with self._database.connection() as connection:
            left = [item for item in batch if not item.settled]
            if again:
                left = await self._without_stored(connection, left)
            fresh: dict[int, TenantDefinitions] = {}
            for _ in range(_MOVES):
                rows = await self._decided(connection, left, fresh)
                if not rows.items:
                    return
                found = await _submit(connection, rows, patient=patient)
                if found:
                    break
                fresh.update(await self._definitions.get_many(connection, sorted(rows.versions)))
            else:
                raise Unavailable("the definitions are being changed") if patient else Busy
        self._end(rows, found)

    async def _without_stored(self, connection: asyncpg.Connection, items: Sequence[Item]) -> list[Item]:
        """Those that have not been carried out by an earlier attempt, whose answer was lost. An id under which another
        workflow has a run is refused.
        """
        tenants = [item.item.request.tenant for item in items]
        rows = await connection.fetch(queries("engine")["stored_starts"], tenants, [item.item.run for item in items])
        stored = {(row["tenant"], row["run"].int): (row["project"], row["workflow"]) for row in rows}
        for item in items:
            request, run = item.item.request, item.item.run
            found = stored.get((request.tenant, run.int))
            if found in ((None, None), (request.project, request.workflow)):
                item.settle(Started(run, True))
            elif found is not None:
                item.settle(id_is_taken())
        return [item for item in items if not item.settled]

    async def _decided(
        self, connection: asyncpg.Connection, items: Sequence[Item], fresh: dict[int, TenantDefinitions]
    ) -> _Rows:
        """What is to be stored. A start that is refused by definitions of before is decided by those of now, which are
        then in `fresh`.
        """
        while True:
            found: list[tuple[Item, WorkflowEntry, int]] = []
            refused: list[tuple[Item, DomainError]] = []
            doubted: set[int] = set()
            for item in items:
                request = item.item.request
                definitions = fresh.get(request.tenant) or self._definitions.held(request.tenant)
                if definitions is None:
                    doubted.add(request.tenant)
                    continue
                try:
                    found.append((item, _entry(definitions, request), definitions.version))
                except DomainError as error:
                    refused.append((item, error))
                    doubted |= {request.tenant} - fresh.keys()
            if not doubted:
                break
            fresh.update(await self._definitions.get_many(connection, sorted(doubted)))
        for item, refusal in refused:
            item.settle(refusal)
        rows = _Rows()
        for item, entry, version in found:
            rows.add(item, entry, version)
        return rows

    def _end(self, rows: _Rows, found: Sequence[asyncpg.Record]) -> None:
        """They are committed: tell everybody."""
        ready: list[Item] = []
        gated: list[tuple[Item, Started]] = []
        gates: set[Pair] = set()
        for item, row, answer in zip(rows.items, rows.starts, found, strict=True):
            started = _started(item.item.request, row, answer)
            if started.fresh is None or started.fresh.due_ms is not None:
                self._settle(item, started)
            elif row.ga is None:
                ready.append(item)
                self._settle(item, started)
            else:
                gates.add((row.ga, row.gb))
                gated.append((item, started))
        if ready:
            trace = ready[0].item.request.trace if len(ready) == 1 else None
            self._hints.ready([item.item.run for item in ready], traceparent=trace)
        if gated:
            granting = asyncio.create_task(self._grant(gated, gates), name="grant")
            self._granting.add(granting)
            granting.add_done_callback(self._granting.discard)

    async def _grant(self, gated: Sequence[tuple[Item, Started]], gates: set[Pair]) -> None:
        try:
            await after_commit(self._gates.grant(gates))
        except Exception:
            log.exception("gates were not granted")
        for item, started in gated:
            self._settle(item, started)

    def _settle(self, item: Item, started: Started) -> None:
        start = item.item
        if started.is_new:
            self._meter.started("api")
            self._spans.started(
                start.run,
                start.request.workflow,
                trace=start.trace,
                parent=start.request.trace,
                begun_ns=start.begun_ns,
            )
        item.settle(started)


async def _submit(connection: asyncpg.Connection, rows: _Rows, *, patient: bool) -> list[asyncpg.Record]:
    """Store them in one statement: what is answered of each; nothing if the definitions have moved."""
    tenants = list(rows.versions)
    arguments: list[Any] = [PATIENT_LOCK_MS if patient else LOCK_MS, tenants, list(rows.versions.values())]
    arguments += narrowed(columns(rows.starts, _START))
    if rows.waits:
        arguments += columns(rows.waits, _WAIT)
    try:
        found = list(
            await connection.fetch(queries("engine")["submit_with_waits" if rows.waits else "submit"], *arguments)
        )
    except asyncpg.LockNotAvailableError:
        if patient:
            raise
        raise Busy from None
    return found * len(rows.starts) if found and found[0]["ord"] is None else found


def _entry(definitions: TenantDefinitions, request: StartRequest) -> WorkflowEntry:
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


def _trigger(start: Start, entry: WorkflowEntry) -> tuple[int | None, dict[str, Any]]:
    """The event that starts the run, and its time where something of the definition may look at it.

    Otherwise it is read by nobody here, and its time is that of the commit.
    """
    definition, request = entry.definition, start.request
    keyed = entry.idempotency is not None and request.idempotency_key is None
    if not (keyed or definition.concurrency or definition.cancel_on):
        return None, {}
    ts = ulid_unix_ms(start.event)
    return ts, event_value(id=ulid_text(start.event), name=API_START, data=request.data, ts=ts)


def _started(request: StartRequest, row: StartRow, answer: asyncpg.Record) -> Started:
    run = row.id if answer["is_new"] else uuid_of(answer["run"].int)
    if not answer["is_new"]:
        return Started(run, False)
    created = answer["created_ms"]
    due = request.at_ms if request.at_ms is not None else created + (request.delay_ms or 0)
    fresh = FreshRun(
        created_ms=created,
        due_ms=due if due > created else None,
        timeout_ms=max(due, created) + row.timeout_ms,
        key=None if row.idem is None else row.idem[2:],
        trace=row.trace,
    )
    return Started(run, True, fresh)
