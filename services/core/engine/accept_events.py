"""Accept events: dedupe, then cancel → resume → start, all in one transaction with the acceptance (engine section 6).

The order of statements is part of the design (rulings C8–C11): ids first (sorted; a duplicate waits there for the
first's end), then a fresh look at the waits, then the runs' rows in the order of their ids, then the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.engine.accept_plan import EventPlan, Incoming, cut, fill, new_plans
from services.core.engine.dedupe import Accepted, accepted_before, firsts
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fan_out import INLINE, INLINE_BYTES, FanOutMarks, store_fan_out
from services.core.engine.find_waits import PIECE, find_hits
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.hit_runs import Aftermath, cancel_runs, lock_runs, resume_waits
from services.core.engine.retrying import after_commit, retrying
from services.core.engine.run_marks import RunMarks
from services.core.engine.run_traces import RunTraces
from services.core.engine.starts import cancel_waits, insert_starts, start_row
from services.core.runtime.fair_turns import FairTurns, NoTurn
from services.core.runtime.ids import UlidFactory, ulid_unix_ms
from services.core.runtime.loop_share import LoopShare
from services.core.runtime.off_loop import OffLoop
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.database import Database
from services.core.store.queries import queries


class EventAcceptor:
    """Accepts events of one tenant at a time, a request as a whole."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        hints: Hints,
        ids: UlidFactory,
        traces: RunTraces | None = None,
        turns: FairTurns | None = None,
    ) -> None:
        """`turns` are those of tenants at the database, where very much may be asked for at once."""
        self._turns = turns
        self._off_loop = OffLoop("accept")
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._gates = Gates(database, hints)
        self._marks = RunMarks(database, hints, self._traces)
        self._fan_out = FanOutMarks(database, hints, traces)
        self._definitions = definitions
        self._hints = hints
        self._ids = ids

    async def accept(self, tenant: int, events: Sequence[Incoming], *, trace: str | None = None) -> list[Accepted]:
        """Accept all of them or, on an error, none. Answers in their order. Raises Unavailable.

        The events must be valid (`domain.event`); names reserved for the platform are the caller's matter.
        """
        ids = [self._ids.new() for _ in events]
        return await self.accept_as(tenant, events, ids, accept_id=uuid4(), trace=trace)

    async def accept_as(
        self,
        tenant: int,
        events: Sequence[Incoming],
        ids: Sequence[UUID],
        *,
        accept_id: UUID,
        trace: str | None = None,
    ) -> list[Accepted]:
        """`accept` under ids fixed before: calling it again with the same ids and accept_id changes nothing more."""
        if self._turns is None:
            return await self._accept(tenant, events, ids, accept_id, trace)
        try:
            async with self._turns.turn(tenant):
                return await self._accept(tenant, events, ids, accept_id, trace)
        except NoTurn:
            raise Unavailable("too many events are waiting to be accepted") from None

    async def _accept(
        self, tenant: int, events: Sequence[Incoming], ids: Sequence[UUID], accept_id: UUID, trace: str | None
    ) -> list[Accepted]:
        begun_ns = self._traces.spans.now_ns()
        answers, aftermath = await retrying(lambda _: self._once(tenant, events, ids, accept_id, trace))
        await aftermath.tell(tenant, self._hints, self._gates, self._traces, trace)
        for run, workflow, own in aftermath.started:
            self._traces.spans.started(run, workflow, trace=own, parent=trace, begun_ns=begun_ns)
        if aftermath.ended:
            await after_commit(self._marks.cascade())
        if aftermath.fan_outs:
            await after_commit(self._fan_out.carry_out(aftermath.fan_outs))
        return answers

    async def _once(
        self, tenant: int, events: Sequence[Incoming], ids: Sequence[UUID], accept_id: UUID, trace: str | None
    ) -> tuple[list[Accepted], Aftermath]:
        aftermath, share = Aftermath(), LoopShare(PIECE)
        first = firsts(events)
        async with self._database.transaction() as connection:
            known = await accepted_before(connection, tenant, events, ids, accept_id)
            fresh = [place for place in range(len(events)) if first[place] == place and place not in known]
            if fresh:
                definitions = await self._definitions.get(connection, tenant)
                now = await connection.fetchval(queries("engine")["now_ms"])
            while fresh:
                count = cut([events[place] for place in fresh], definitions)
                group, fresh = fresh[:count], fresh[count:]
                incoming = [events[place] for place in group]
                size = sum(len(event.data) for event in incoming)
                plans = await self._off_loop.run(size, new_plans, incoming, [ids[place] for place in group], now)
                hits = await find_hits(connection, tenant, plans, self._off_loop, share)
                await fill(plans, *hits.by_event(), definitions, share)
                await _hit(connection, tenant, plans, aftermath, traced=self._traces.enabled)
                await self._start_runs(connection, plans, trace, aftermath)
                await _store(connection, tenant, plans, trace)
                known.update((place, Accepted.of(plan)) for place, plan in zip(group, plans, strict=True))
        answers = [known[f] if f == place else replace(known[f], duplicate=True) for place, f in enumerate(first)]
        return answers, aftermath

    async def _start_runs(
        self, connection: asyncpg.Connection, plans: list[EventPlan], trace: str | None, aftermath: Aftermath
    ) -> None:
        starts: list[StartRow] = []
        waits: list[WaitRow] = []
        for plan in plans:
            for entry in plan.starts:
                run = self._ids.new()
                starts.append(
                    start_row(
                        entry,
                        run=run,
                        source="queue" if plan.incoming.src == "q" else "event",
                        event=plan.id,
                        event_name=plan.incoming.name,
                        event_ts=plan.ts,
                        event_data=None,
                        trigger=plan.value,
                        test=plan.incoming.test,
                        trace=self._traces.spans.place(trace),
                    )
                )
                waits += cancel_waits(entry, run, plan.value)
        found = iter(zip(starts, await insert_starts(connection, starts, waits), strict=True))
        for plan in plans:
            for entry in plan.starts:
                row, (run, is_new) = next(found)
                plan.runs.append(run)
                if is_new:
                    aftermath.started.append((run, entry.name, row.trace))
                    aftermath.gates.add(row.ga)
                    aftermath.ready += [run] if row.ga is None else []


async def _hit(
    connection: asyncpg.Connection, tenant: int, plans: Sequence[EventPlan], aftermath: Aftermath, *, traced: bool
) -> None:
    """Cancel and resume what the plans say, as far as it is still there once the rows are locked."""
    near = _near(plans)
    hit = {run for place in near for run in plans[place].cancels}
    hit |= {wait.run for place in near for wait in plans[place].resumes}
    if hit:
        await lock_runs(connection, tenant, list(hit))
    for place, plan in enumerate(plans):
        if place not in near:
            aftermath.fan_outs += await store_fan_out(connection, tenant, plan)
            continue
        if plan.cancels:
            plan.cancelled_runs = await cancel_runs(connection, plan.cancels, aftermath)
            plan.cancelled = len(plan.cancelled_runs)
        if plan.resumes:
            waits = [wait.id for wait in plan.resumes]
            rows = await resume_waits(
                connection, waits, event=plan.id, payload=plan.payload, traced=traced, aftermath=aftermath
            )
            plan.resumed = sum(len(row["waits"]) for row in rows)
            plan.resumed_runs = [row["run"] for row in rows]


def _near(plans: Sequence[EventPlan]) -> set[int]:
    """Places of the events whose effects are small enough to be in the transaction that accepts them."""
    near = set()
    room = INLINE_BYTES
    for place, plan in enumerate(plans):
        size = len(plan.resumes) * len(plan.incoming.data)
        if len(plan.cancels) + len(plan.resumes) <= INLINE and size <= room:
            near.add(place)
            room -= size
    return near


async def _store(connection: asyncpg.Connection, tenant: int, plans: Sequence[EventPlan], trace: str | None) -> None:
    await connection.execute(
        queries("engine")["store_events"],
        tenant,
        [plan.id for plan in plans],
        [plan.incoming.name for plan in plans],
        [plan.incoming.data for plan in plans],
        [plan.ts for plan in plans],
        [plan.incoming.event_id if plan.incoming.src == "u" else None for plan in plans],
        [plan.incoming.source for plan in plans],
        [plan.incoming.project for plan in plans],
        [plan.incoming.run for plan in plans],
        [plan.incoming.test for plan in plans],
        [plan.effects for plan in plans],
        trace,
        [ulid_unix_ms(plan.id) for plan in plans],
    )
