"""Accept events: those of one tenant that come at the same time, in however many requests, are one transaction.

Tenants are apart, since what matching costs is the tenant's own (rulings P8), and each has its turn at the database.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID, uuid4

from services.core.domain.errors import Unavailable
from services.core.engine.accept_batch import AcceptTransaction
from services.core.engine.accept_outcome import Item, Outcome
from services.core.engine.accept_plan import AcceptRequest, Incoming
from services.core.engine.dedupe import Accepted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fan_out import FanOutMarks
from services.core.engine.gates import Gates
from services.core.engine.group_commit import Bounds, GroupCommit
from services.core.engine.hints import Hints
from services.core.engine.isolate import Isolating
from services.core.engine.retrying import after_commit
from services.core.engine.run_marks import RunMarks
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import Clock, SystemClock
from services.core.runtime.fair_turns import FairTurns, NoTurn
from services.core.runtime.ids import UlidFactory, ids_from
from services.core.runtime.off_loop import OffLoop
from services.core.store.database import Database

log = logging.getLogger(__name__)

# Some hundred events: their locks are held as long as the whole takes.
_BOUNDS = Bounds(items=256, size=128 * 1024, much=32 * 1024)
_ASIDE = Bounds(items=1, lanes=4)

Line = GroupCommit[AcceptRequest, list[Accepted]]


class EventAcceptor:
    """Accepts events, a request as a whole."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        hints: Hints,
        ids: UlidFactory,
        traces: RunTraces | None = None,
        turns: FairTurns | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`turns` are those of tenants at the database, where very much may be asked for at once."""
        self._turns = turns
        self._traces = traces or RunTraces.off(database)
        self._clock = clock or SystemClock()
        self._transaction = AcceptTransaction(database, definitions, ids, self._traces, OffLoop("accept"), self._clock)
        self._gates = Gates(database, hints)
        self._marks = RunMarks(database, hints, self._traces)
        self._fan_out = FanOutMarks(database, hints, traces)
        self._hints = hints
        self._ids = ids
        self._isolating = Isolating(self._once)
        self._lines: dict[int, Line] = {}
        self._aside: Line = GroupCommit(self._commit_apart, self._clock, _ASIDE)

    async def accept(
        self, tenant: int, events: Sequence[Incoming], *, trace: str | None = None, first_id: UUID | None = None
    ) -> list[Accepted]:
        """Accept all of them or, on an error, none. Answers in their order. Raises Unavailable.

        The events must be valid (`domain.event`); names reserved for the platform are the caller's matter. Under the
        same `first_id` it is the same request, which may have been carried out.
        """
        again = first_id is not None
        return await self._commit(self._request(tenant, events, trace=trace, first_id=first_id, again=again))

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
        now_ns = self._traces.spans.now_ns()
        return await self._commit(AcceptRequest(tenant, events, ids, accept_id, trace, now_ns, again=True))

    def submit(
        self,
        tenant: int,
        events: Sequence[Incoming],
        tell: Callable[[list[Accepted] | Exception], None],
        *,
        trace: str | None = None,
        first_id: UUID | None = None,
        again: bool = False,
    ) -> None:
        """Have them accepted and the end told, with the errors of `accept`. Raises Unavailable where too much waits.

        `first_id` is the first event's, if the caller has made it; under the same it is the same request, and `again`
        says that it may have come before.
        """
        request = self._request(tenant, events, trace=trace, first_id=first_id, again=again)
        self._line(tenant).submit(request, key=tenant, size=request.size, tell=tell)

    def _request(
        self,
        tenant: int,
        events: Sequence[Incoming],
        *,
        trace: str | None,
        first_id: UUID | None = None,
        again: bool = False,
    ) -> AcceptRequest:
        first = first_id or self._ids.block(max(1, len(events)))
        accept_id = first_id or uuid4()
        now_ns = self._traces.spans.now_ns()
        ids = ids_from(first, len(events))
        return AcceptRequest(tenant, events, ids, accept_id, trace, now_ns, again, offered=first_id is not None)

    async def _commit(self, request: AcceptRequest) -> list[Accepted]:
        return await self._line(request.tenant).commit(request, key=request.tenant, size=request.size)

    def _line(self, tenant: int) -> Line:
        """Where the requests of a tenant wait for each other; there as long as any does."""
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = GroupCommit(
                partial(self._isolating.commit, aside=self._aside),
                self._clock,
                _BOUNDS,
                turn=partial(self._turn, tenant),
                idle=partial(self._lines.pop, tenant, None),
            )
        return line

    @asynccontextmanager
    async def _turn(self, tenant: int) -> AsyncIterator[None]:
        if self._turns is None:
            yield
            return
        try:
            async with self._turns.turn(tenant):
                yield
        except NoTurn:
            raise Unavailable("too many events are waiting to be accepted") from None

    async def _commit_apart(self, batch: Sequence[Item]) -> None:
        """One that waits for somebody else's transaction."""
        async with self._turn(batch[0].item.tenant):
            await self._isolating.commit(batch)

    async def _once(self, batch: Sequence[Item], *, again: bool, patient: bool) -> None:
        """One attempt: see `isolate.Once`."""
        tenant = batch[0].item.tenant
        outcome = await self._transaction.carry_out(tenant, batch, again=again, patient=patient)
        traces = {item.item.trace for item, _ in outcome.answers}
        # Before anything else: who executes it is quicker to begin than who is answered is to go on.
        self._hints.ready(outcome.aftermath.ready, traceparent=traces.pop() if len(traces) == 1 else None)
        for item, accepted in outcome.answers:
            if item.item.accept_id not in outcome.followed:
                item.settle(accepted)
        try:
            await self._follow(tenant, outcome)
        except Exception:
            log.exception("what follows events is left to the scheduler", extra={"tenant": tenant})
        for item, accepted in outcome.answers:
            item.settle(accepted)

    async def _follow(self, tenant: int, outcome: Outcome) -> None:
        """It is committed: tell others, and do what was left for after it."""
        await outcome.aftermath.tell(tenant, self._hints, self._gates, self._traces)
        self._count(outcome)
        for request, run, workflow, own in outcome.started:
            self._traces.spans.started(run, workflow, trace=own, parent=request.trace, begun_ns=request.begun_ns)
        if outcome.aftermath.ended:
            await after_commit(self._marks.cascade())
        if outcome.aftermath.fan_outs:
            await after_commit(self._fan_out.carry_out(outcome.aftermath.fan_outs))

    def _count(self, outcome: Outcome) -> None:
        meter = self._traces.meter
        events = [event for _, accepted in outcome.answers for event in accepted]
        duplicates = sum(event.duplicate for event in events)
        meter.accepted(new=len(events) - duplicates, duplicate=duplicates)
        for request, *_ in outcome.started:
            meter.started("queue" if request.events[0].src == "q" else "event")
