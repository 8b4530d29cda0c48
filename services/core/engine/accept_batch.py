"""The transaction that accepts events: dedupe, then cancel → resume → start, all with the acceptance (engine section
6).

The order of statements is part of the design (rulings C8–C11): ids first (sorted; a duplicate waits there for the
first's end), then a fresh look at the waits, then the runs' rows in the order of their ids, then the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

from services.core.engine.accept_outcome import Item, Outcome
from services.core.engine.accept_plan import AcceptRequest, EventPlan, cut, event_columns, fill, new_plans
from services.core.engine.accept_quick import QuickAccept
from services.core.engine.accept_starts import EventStarts
from services.core.engine.dedupe import Accepted, begin_accept, firsts, next_context
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fan_out import INLINE, INLINE_BYTES, store_fan_out
from services.core.engine.find_waits import PIECE, Hits, find_hits
from services.core.engine.hit_runs import Aftermath, Delivery, cancel_runs, is_gated, lock_and_resume, resume_waits
from services.core.engine.isolate import id_is_taken, waiting_for_locks
from services.core.engine.run_traces import RunTraces
from services.core.engine.starts import insert_starts
from services.core.runtime.clock import Clock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.loop_share import LoopShare
from services.core.runtime.off_loop import OffLoop
from services.core.store.database import Database
from services.core.store.queries import queries

_MANY_WAITS = 16
_SHARED_BYTES = 16 * 1024


class AcceptTransaction:
    """Accepts requests of one tenant in one transaction."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        ids: UlidFactory,
        traces: RunTraces,
        off_loop: OffLoop,
        clock: Clock,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._ids = ids
        self._traces = traces
        self._off_loop = off_loop
        self._quick = QuickAccept(database, definitions, ids, traces, off_loop, clock)

    async def carry_out(self, tenant: int, batch: Sequence[Item], *, again: bool, patient: bool) -> Outcome:
        """Accept all that the requests hold, or none. Raises Busy where a lock is not to be had soon, and what the
        driver raises.
        """
        # One that came twice, since its sender lost its stream meanwhile, is carried out once.
        unique: dict[UUID, AcceptRequest] = {}
        for item in batch:
            first = unique.setdefault(item.item.accept_id, item.item)
            if first is not item.item and list(first.events) != list(item.item.events):
                item.settle(id_is_taken())
        requests = list(unique.values())
        batch = [item for item in batch if not item.settled]
        outcome = Outcome()
        found = None if again else await self._quick.accept(tenant, requests, outcome, patient=patient)
        if found is None:
            async with self._database.transaction() as connection:
                with waiting_for_locks(patient=patient) as lock_ms:
                    found = await self._accept(connection, tenant, requests, outcome, again=again, lock_ms=lock_ms)
        outcome.answers = [(item, found[item.item.accept_id]) for item in batch]
        return outcome

    async def _accept(
        self,
        connection: asyncpg.Connection,
        tenant: int,
        requests: Sequence[AcceptRequest],
        outcome: Outcome,
        *,
        again: bool,
        lock_ms: int,
    ) -> dict[UUID, list[Accepted]]:
        """What became of each request's events, by its accept id."""
        places = [(request, place) for request in requests for place in range(len(request.events))]
        events = [request.events[place] for request, place in places]
        first = firsts(events)
        known, context = await begin_accept(
            connection,
            tenant,
            events,
            [request.ids[place] for request, place in places],
            [request.accept_id for request, _ in places],
            offered=frozenset(request.accept_id for request in requests if request.offered),
            again=again,
            lock_ms=lock_ms,
        )
        self._quick.learn(tenant, events, context.paths)
        fresh = [place for place in range(len(events)) if first[place] == place and place not in known]
        share = LoopShare(PIECE)
        while fresh:
            definitions = await self._definitions.at(connection, tenant, context.version)
            count = cut([events[place] for place in fresh], definitions)
            group, fresh = fresh[:count], fresh[count:]
            size = sum(len(events[place].data) for place in group)
            plans = await self._off_loop.run(size, new_plans, [places[place] for place in group], context.now_ms)
            hits = Hits()
            if context.waited:
                hits = await find_hits(connection, tenant, plans, context.paths, self._off_loop, share)
            await fill(plans, *hits.by_event(), definitions, share)
            await _hit(connection, tenant, plans, outcome.aftermath, traced=self._traces.enabled)
            await self._start_runs(connection, plans, outcome)
            await _store(connection, tenant, plans)
            outcome.followed |= {plan.request.accept_id for plan in plans if plan.goes_on}
            known.update((place, Accepted.of(plan)) for place, plan in zip(group, plans, strict=True))
            if fresh:
                names = (events[place].name for place in fresh)
                context = await next_context(connection, tenant, names, lock_ms=lock_ms)
        found: dict[UUID, list[Accepted]] = {}
        for place, (request, _) in enumerate(places):
            answer = known[first[place]]
            found.setdefault(request.accept_id, []).append(
                answer if first[place] == place else msgspec.structs.replace(answer, duplicate=True)
            )
        return found

    async def _start_runs(self, connection: asyncpg.Connection, plans: Sequence[EventPlan], outcome: Outcome) -> None:
        starts = EventStarts.of(plans, self._ids, self._traces.spans)
        found = await insert_starts(connection, starts.rows, starts.waits)
        outcome.started += starts.note(plans, found, outcome.aftermath)


async def _hit(
    connection: asyncpg.Connection, tenant: int, plans: Sequence[EventPlan], aftermath: Aftermath, *, traced: bool
) -> None:
    """Cancel and resume what the plans say, as far as it is still there once the rows are locked.

    A run that one event resumes may be cancelled by a later one of them, and none the other way: so all resume first.
    """
    near = _near(plans)
    hit = {run for plan in near for run in plan.cancels}
    hit |= {wait.run for plan in near for wait in plan.resumes}
    if hit:
        await _resume(connection, tenant, list(hit), near, aftermath, traced=traced)
        await _cancel(connection, near, aftermath)
    if len(near) < len(plans):
        inline = {plan.id for plan in near}
        for plan in plans:
            if plan.id not in inline:
                plan.goes_on = True
                aftermath.fan_outs += await store_fan_out(connection, tenant, plan)


def _near(plans: Sequence[EventPlan]) -> list[EventPlan]:
    """The events whose effects are small enough to be in the transaction that accepts them."""
    near = []
    room = INLINE_BYTES
    for plan in plans:
        size = len(plan.resumes) * len(plan.incoming.data)
        if len(plan.cancels) + len(plan.resumes) <= INLINE and size <= room:
            near.append(plan)
            room -= size
    return near


async def _resume(
    connection: asyncpg.Connection,
    tenant: int,
    runs: Sequence[UUID],
    plans: Sequence[EventPlan],
    aftermath: Aftermath,
    *,
    traced: bool,
) -> None:
    """Lock the runs, which all effects are on, and resume those that are to be."""
    few: dict[UUID, tuple[EventPlan, Delivery]] = {}
    many: list[EventPlan] = []
    for plan in plans:
        if len(plan.resumes) > _MANY_WAITS or (plan.resumes and len(plan.incoming.data) > _SHARED_BYTES):
            many.append(plan)
        elif plan.resumes:
            payload = plan.payload
            few.update({wait.id: (plan, Delivery(wait.id, plan.id, payload)) for wait in plan.resumes})
    deliveries = [delivery for _, delivery in few.values()]
    for row in await lock_and_resume(connection, tenant, runs, deliveries, traced=traced, aftermath=aftermath):
        for wait in row["waits"]:
            plan, _ = few[wait]
            plan.resumed += 1
            plan.goes_on |= is_gated(row)
            if row["run"] not in plan.resumed_runs:
                plan.resumed_runs.append(row["run"])
    for plan in many:
        waits = [wait.id for wait in plan.resumes]
        rows = await resume_waits(
            connection, waits, event=plan.id, payload=plan.payload, traced=traced, aftermath=aftermath
        )
        plan.resumed = sum(len(row["waits"]) for row in rows)
        plan.resumed_runs = [row["run"] for row in rows]
        plan.goes_on |= any(is_gated(row) for row in rows)


async def _cancel(connection: asyncpg.Connection, plans: Sequence[EventPlan], aftermath: Aftermath) -> None:
    wanted = [run for plan in plans for run in plan.cancels]
    if not wanted:
        return
    ended = set(await cancel_runs(connection, wanted, aftermath))
    for plan in plans:
        plan.cancelled_runs = [run for run in plan.cancels if run in ended]
        plan.goes_on |= bool(plan.cancelled_runs)
        plan.cancelled = len(plan.cancelled_runs)


async def _store(connection: asyncpg.Connection, tenant: int, plans: Sequence[EventPlan]) -> None:
    await connection.execute(queries("engine")["store_events"], tenant, *event_columns(plans))
