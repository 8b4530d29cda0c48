"""Does the operations of a plan to the engine, and keeps what it answers."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from services.core.domain.errors import Conflict, InvalidInput, NotFound
from services.core.engine.accept_plan import Incoming
from services.core.engine.dedupe import Accepted
from services.core.engine.replay_run import ReplayRequest
from services.core.engine.start_request import Started, StartRequest
from tests.model.ledger import Ledger, Replayed, Sent
from tests.model.machine import PROJECT, Machine
from tests.model.plan import (
    Bury,
    Cancel,
    Crash,
    Cut,
    Drain,
    Emit,
    Fall,
    Harm,
    Leave,
    LetGo,
    Op,
    Pass,
    Replay,
    Retry,
    SetActive,
    Settle,
    Start,
    Tear,
    Tick,
)
from tests.model.script import Await, Workflow
from tests.model.settle import let_pass, look_at_ends, settle

_WHOSE = """
select w.name, coalesce(r.event_data, e.data) as data
from rt.runs r join rt.workflows w on w.id = r.wf left join rt.events e on e.id = r.event where r.id = $1
"""


class Operator:
    """Carries out operations, several at once where it is told to."""

    def __init__(self, machine: Machine, ledger: Ledger) -> None:
        self._machine = machine
        self._ledger = ledger
        self._n = 0

    async def carry_out(self, op: Op) -> None:
        """Do it. Refusals that the model expects are no faults."""
        match op:
            case Start():
                await self._start(op)
            case Emit():
                await self._emit(op)
            case Cancel():
                await self._cancel(op)
            case Retry():
                await self._retry(op)
            case Replay():
                await self._replay(op)
            case SetActive():
                await self._set_active(op)
            case Pass(ms=ms):
                await let_pass(self._machine, ms)
            case Tick(schedulers=count):
                await asyncio.gather(*(each.tick() for each in self._machine.schedulers[:count]))
            case LetGo(share=share):
                self._machine.functions.let_go(share)
            case Settle():
                await settle(self._machine)
            case Crash() | Bury() | Drain() | Cut() | Tear() | Fall() | Leave():
                await self._harm(op)
        await self.raise_the_dead()

    async def raise_the_dead(self) -> None:
        """Executors that have reached the point where they die are killed, and started again."""
        for executor in self._machine.executors:
            await executor.die(only_dying=True)

    async def _start(self, op: Start) -> None:
        request = StartRequest(
            tenant=self._machine.tenants[op.tenant],
            project=PROJECT,
            workflow=op.workflow,
            data=json.dumps(self._data(op.k, op.x)),
            idempotency_key=op.key,
            delay_ms=op.delay_ms,
            trace=_traceparent(),
        )
        starts = (self._machine.ingest.starter.start(request) for _ in range(op.copies))
        answers = await asyncio.gather(*starts, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Conflict) and (op.tenant, op.workflow) in self._ledger.paused:
                continue
            if not isinstance(answer, Started):
                self._ledger.faults.append(f"{op} was answered {answer!r}")
                continue
            self._know(answer.run)
            self._ledger.new[answer.run] += answer.is_new
            if op.delay_ms and answer.is_new:
                self._ledger.delays[answer.run] = op.delay_ms
            if op.key is not None:
                self._ledger.keyed.setdefault((op.tenant, op.workflow, op.key), set()).add(answer.run)

    def _data(self, k: int, x: int) -> dict[str, Any]:
        self._n += 1
        return {"k": k, "x": x, "n": self._n}

    async def _emit(self, op: Emit) -> None:
        tenant = self._machine.tenants[op.tenant]
        datas = [self._data(k, x) for _, k, x, _ in op.events]
        events = [
            Incoming(name=name, data=json.dumps(data), event_id=event_id)
            for (name, _, _, event_id), data in zip(op.events, datas, strict=True)
        ]
        open_before = await self._open_waits(op.tenant)
        accepting = (
            self._machine.ingest.acceptor.accept(tenant, events, trace=_traceparent()) for _ in range(op.copies)
        )
        answers = await asyncio.gather(*accepting, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                self._ledger.faults.append(f"{op} was answered {answer!r}")
                continue
            for (name, _, _, event_id), data, accepted in zip(op.events, datas, answer, strict=True):
                self._ledger.sent.append(Sent(op.tenant, name, data, event_id, accepted))
                for run in accepted.runs:
                    self._know(run)
                if not accepted.duplicate:
                    await self._resumed(op.tenant, name, data, accepted, open_before)

    async def _open_waits(self, tenant: int) -> list[tuple[UUID, UUID, str | None]]:
        """Waits for events that time has not ended: id, run, and step; no step: what cancels the run."""
        query = """
            select id, run, sid from rt.wait
            where tenant = $1 and kind in ('e', 'x') and (due_at is null or due_at > rt.now())
        """
        async with self._machine.database.connection() as connection:
            rows = await connection.fetch(query, self._machine.tenants[tenant])
        return [(row["id"], row["run"], row["sid"]) for row in rows]

    async def _resumed(
        self,
        tenant: int,
        name: str,
        data: dict[str, Any],
        accepted: Accepted,
        before: list[tuple[UUID, UUID, str | None]],
    ) -> None:
        """No wait that was open before the event was sent, and that it matches, may be open after it was accepted."""
        still = {id for id, _, _ in await self._open_waits(tenant)}
        for id, run, sid in before:
            if id not in still:
                continue
            async with self._machine.database.connection() as connection:
                row = await connection.fetchrow(_WHOSE, run)
            if _matches(self._machine.workflow(row["name"]), sid, name, data, json.loads(row["data"])):
                did = "cancel" if sid is None else f"resume {sid} of"
                self._ledger.faults.append(f"event {accepted.id} did not {did} run {run} by its wait {id}")

    async def _cancel(self, op: Cancel) -> None:
        run = await self._pick(op.which, "select id from rt.live order by id")
        if run is None:
            return
        try:
            await self._machine.ingest.canceller.cancel(await self._tenant_of(run), run, keep_children=op.keep)
        except Conflict:
            return
        self._ledger.cancelled.add(run)

    async def _retry(self, op: Retry) -> None:
        run = await self._pick(op.which, "select run as id from rt.ends where status <> 'completed' order by run")
        if run is None:
            return
        await look_at_ends(self._machine, self._ledger)
        self._ledger.retries[run] += 1
        witness = self._machine.functions.witness
        witness.forget_failures(run)
        late = witness.tokens_inside(run)
        witness.lives[run] += 1
        try:
            await self._machine.ingest.retrier.retry(await self._tenant_of(run), run)
        except Conflict:
            return
        witness.late |= late
        self._ledger.retried[run] += 1
        self._ledger.ends.pop(run, None)

    async def _replay(self, op: Replay) -> None:
        run = await self._pick(op.which, "select id from rt.runs order by id")
        if run is None:
            return
        async with self._machine.database.connection() as connection:
            query = "select sid, status = 'c' as ok from rt.steps where run = $1 and status in ('c', 'f') order by seq"
            rows = await connection.fetch(query, run)
        place = int(op.step * len(rows)) if op.step is not None and rows else None
        step = None if place is None else rows[place]["sid"]
        request = ReplayRequest(tenant=await self._tenant_of(run), run=run, from_step=step)
        try:
            replay = await self._machine.ingest.replayer.replay(request)
        except (Conflict, InvalidInput):  # paused; or a retry has just dropped the step
            return
        self._know(replay)
        self._ledger.replays[replay] = Replayed(run, step, {row["sid"] for row in rows[:place] if row["ok"]})

    def _know(self, run: UUID) -> None:
        self._ledger.know(run, self._machine.clock.unix_ms())

    async def _pick(self, share: float, among: str) -> UUID | None:
        """One of the runs that the query gives."""
        async with self._machine.database.connection() as connection:
            rows = await connection.fetch(among)
        return UUID(int=rows[int(share * len(rows))]["id"].int) if rows else None

    async def _tenant_of(self, run: UUID) -> int:
        async with self._machine.database.connection() as connection:
            tenant = await connection.fetchval("select tenant from rt.runs where id = $1", run)
        if tenant is None:
            raise NotFound(f"the acknowledged run {run} is lost")
        return int(tenant)

    async def _set_active(self, op: SetActive) -> None:
        place = (op.tenant, op.workflow)
        tenant = self._machine.tenants[op.tenant]
        await self._machine.ingest.declarer.set_active(tenant, PROJECT, op.workflow, op.active)
        self._ledger.touched.add(op.workflow)
        if op.active:
            self._ledger.paused.discard(place)
        else:
            self._ledger.paused.add(place)

    async def _harm(self, op: Harm) -> None:
        executors = self._machine.executors
        match op:
            case Crash(executor=number, point=None):
                await executors[number].die()
            case Crash(executor=number, point=str(point), after=after):
                executors[number].arm(point, after)
            case Bury(executor=number):
                async with self._machine.database.connection() as connection:
                    await connection.execute("update rt.owner set dead = true where id = $1", executors[number].owner)
            case Drain(executor=number):
                self._ledger.interrupted.update(await executors[number].restart())
            case Cut(executor=None):
                await self._machine.cut_ingest()
            case Cut(executor=int(number)):
                await executors[number].cut()
            case Tear() | Fall() | Leave():
                await self._harm_a_worker(op)

    async def _harm_a_worker(self, op: Tear | Fall | Leave) -> None:
        worker = self._machine.workers.get(op.worker)
        match op:
            case Tear() if worker is not None:
                worker.tear()
            case Fall() if worker is not None:
                await worker.die()
            case Leave() if worker is not None:
                self._ledger.interrupted.update(await worker.leave())


def _traceparent() -> str:
    """The trace context of a request."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def _matches(workflow: Workflow, sid: str | None, name: str, data: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether a wait of a run with its own data is for an event."""
    if sid is None:
        return workflow.cancelled_by == name and data["k"] == own.get("k")
    step = workflow.step(sid)
    return isinstance(step, Await) and step.event == name and step.takes(data, own)
