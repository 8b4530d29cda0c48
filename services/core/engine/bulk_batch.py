"""What a bulk job does with some runs at once, in one transaction: set-based, in the lock order of single runs (rulings
C11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg

from services.core.domain.bulk_job import BulkFault
from services.core.domain.errors import Conflict
from services.core.domain.op import OpError
from services.core.domain.run import ACTIVE, Status
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import NO_PAIR, Pair, gates_of
from services.core.engine.replay_run import replay_rows
from services.core.engine.run_spans import RunSpans
from services.core.engine.starts import cancel_waits, insert_starts
from services.core.engine.stored_run import StoredRun, stored_runs
from services.core.runtime.ids import UlidFactory
from services.core.store.batch import columns
from services.core.store.bulk_jobs import TakenJob
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.queries import queries, tenant_query

_MEMORY = 16 * 1024 * 1024
_PRUNED = OpError("EVENT_PRUNED", "the event that started the run is not kept any more")


@dataclass(slots=True)
class Batch:
    """What was done with the first `handled` of some runs, and who must hear of it after the commit."""

    handled: int
    succeeded: int = 0
    faults: list[BulkFault] = field(default_factory=list)
    ready: list[UUID] = field(default_factory=list)
    gates: set[Pair] = field(default_factory=set)
    owners: dict[int, list[UUID]] = field(default_factory=dict)
    ended: list[UUID] = field(default_factory=list)
    started: list[tuple[UUID, str, str | None]] = field(default_factory=list)

    @property
    def skipped(self) -> int:
        """Runs whose state did not allow the action any more."""
        return self.handled - self.succeeded - len(self.faults)

    def makes_ready(self, run: UUID, gates: Pair) -> None:
        """A run is in the queue, or before its gates."""
        if gates == NO_PAIR:
            self.ready.append(run)
        else:
            self.gates.add(gates)


class BulkActions:
    """The actions, each in the caller's transaction, on the runs of a page of the job."""

    def __init__(self, definitions: DefinitionsCache, ids: UlidFactory, spans: RunSpans) -> None:
        self._definitions = definitions
        self._ids = ids
        self._spans = spans

    async def do(self, connection: asyncpg.Connection, job: TakenJob, runs: Sequence[UUID]) -> Batch:
        """Do the job's action to the first of these runs, as many as fit into the memory of a batch."""
        if job.action == "cancel":
            return await _cancel(connection, job, runs)
        some = await _fitting(connection, job.tenant, runs)
        found = await stored_runs(connection, self._definitions, job.tenant, some)
        batch = Batch(handled=len(some))
        wanted: list[StoredRun] = []
        for run in some:
            stored = found.get(run)
            if stored is not None and _is_wanted(job, stored):
                wanted.append(stored)
            elif run in found and stored is None:
                batch.faults.append(BulkFault(run, _PRUNED))
        if job.action == "retry":
            await _retry(connection, job.tenant, wanted, batch)
        else:
            await self._replay(connection, job, wanted, batch)
        return batch

    async def _replay(
        self, connection: asyncpg.Connection, job: TakenJob, wanted: Sequence[StoredRun], batch: Batch
    ) -> None:
        starts: list[StartRow] = []
        waits: list[WaitRow] = []
        for stored in wanted:
            try:
                row, cancels = replay_rows(stored, self._ids.new(), trace=self._spans.place(job.trace))
            except Conflict as refused:
                batch.faults.append(BulkFault(stored.id, OpError(refused.reason, refused.message)))
                continue
            starts.append(row)
            waits += cancels
            batch.started.append((row.id, stored.entry.name, row.trace))
            batch.makes_ready(row.id, (row.ga, row.gb))
        await insert_starts(connection, starts, waits)
        batch.succeeded = len(starts)


async def _cancel(connection: asyncpg.Connection, job: TakenJob, runs: Sequence[UUID]) -> Batch:
    batch = Batch(handled=len(runs))
    states = [status.value for status in ACTIVE if status.shown in job.wanted.states]
    held = await connection.fetch(queries("run_control")["lock_active"], job.tenant, runs, states)
    if not held:
        return batch
    none = [None] * len(held)
    ended = await connection.fetch(
        queries("engine")["finish"], [row["id"] for row in held], ["cancelled"] * len(held), none, none
    )
    for row in ended:
        run = UUID(int=row["run"].int)
        batch.ended.append(run)
        batch.gates.add((row["ga"], row["gb"]))
        if row["owner"] is not None:
            batch.owners.setdefault(row["owner"], []).append(run)
    batch.succeeded = len(ended)
    return batch


async def _retry(connection: asyncpg.Connection, tenant: int, wanted: Sequence[StoredRun], batch: Batch) -> None:
    if not wanted:
        return
    in_order = sorted(wanted, key=lambda each: each.id)
    triggers = {stored.id: stored.trigger() for stored in in_order}
    gates = {stored.id: gates_of(stored.entry, triggers[stored.id]) for stored in in_order}
    rows = []
    for stored in in_order:
        definition = stored.entry.definition
        rows.append((stored.id, definition.max_attempts, definition.timeout_ms, *gates[stored.id]))
    retried = await connection.fetch(queries("run_control")["retry_many"], tenant, *columns(rows, 6))
    done = {row["run"].int for row in retried}
    waits: list[WaitRow] = []
    for stored in in_order:
        if stored.id.int in done:
            batch.makes_ready(stored.id, gates[stored.id].pair)
            waits += cancel_waits(stored.entry, stored.id, triggers[stored.id])
    if waits:
        await connection.execute(queries("engine")["open_waits"], *columns(waits, len(WaitRow._fields)))
    batch.succeeded = len(done)


def _is_wanted(job: TakenJob, stored: StoredRun) -> bool:
    """Whether its state is one that the job is about: it may have changed since the run was found."""
    if stored.status is not None:
        return Status(stored.status).shown in job.wanted.states
    return any(status.shown in job.wanted.states for status in ACTIVE)


async def _fitting(connection: asyncpg.Connection, tenant: int, runs: Sequence[UUID]) -> Sequence[UUID]:
    """The first of the runs, at least one, whose events fit into memory together."""
    rows = await connection.fetch(tenant_query("run_control", "trigger_sizes", tenant), runs)
    sizes = {row["id"].int: row["size"] for row in rows}
    total = 0
    for place, run in enumerate(runs):
        total += sizes.get(run.int, 0)
        if total > _MEMORY and place > 0:
            return runs[:place]
    return runs
