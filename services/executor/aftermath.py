"""What follows a commit: hints, and marks carried out. Nothing here is needed for correctness, all of it for speed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from msgspec.structs import replace

from services.core.domain.errors import Unavailable
from services.core.domain.gate_rule import NO_GATES
from services.core.domain.run import Status
from services.core.domain.transition import Decision
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.gates import Gates, Pair
from services.core.engine.hints import TIMER_HORIZON_MS, Hints
from services.core.engine.look_back import LookBack
from services.core.engine.look_backs import LookBacks
from services.core.engine.run_events import RunEventMarks, hears_ends
from services.core.engine.run_marks import RunMarks
from services.core.engine.run_traces import RunTraces
from services.core.engine.send_events import SendEventMarks, SendMark
from services.core.runtime.clock import Clock
from services.core.store.commit_item import CommitItem, Committed, WaitRow
from services.core.store.database import Database
from services.executor.asleep import Asleep
from services.executor.lease import Lease
from services.executor.own_timers import Keep, Timer, keeps_none

log = logging.getLogger(__name__)

_OWN = frozenset("sb")
_RESUMED = frozenset("ec")
_STORED_MS = 1.0
"""About so long after it was asked the database stores waits. Who looks a little early is told when to look again."""


class Aftermath:
    """Collects what commits leave to do and does it in the background, together."""

    def __init__(
        self,
        database: Database,
        hints: Hints,
        acceptor: EventAcceptor,
        clock: Clock,
        traces: RunTraces | None = None,
    ) -> None:
        """`clock` shows about what the database's does: it tells when a timer that was just committed is due."""
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._gates = Gates(database, hints)
        self._run_marks = RunMarks(database, hints, self._traces)
        self._touched: set[Pair] = set()
        self._look_backs = LookBacks(database, LookBack(database, hints, self._traces))
        self.keep_timer: Keep = keeps_none
        """Keeps a sleep or a backoff in this process, to be fired here."""
        self.remember: Callable[[Asleep], None] = lambda _: None
        """Keeps what is known of a run that rests, for when it is resumed."""
        self._clock = clock
        self._hints = hints
        self._send_marks = SendEventMarks(database, acceptor)
        self._run_events = RunEventMarks(database, acceptor)
        self._ready: list[UUID] = []
        self._timers: list[tuple[UUID, int]] = []
        self._has_send_marks = False
        self._has_run_marks = False
        self._has_run_events = False
        self._wake = asyncio.Event()

    async def name_sent(self, item: CommitItem) -> CommitItem:
        """Accept the events of a commit at once, and the item with their ids in it. Raises Unavailable."""
        outputs: dict[str, str] = {}
        for row in item.mark_rows:
            mark = SendMark.from_json(row.body)
            outputs[mark.step] = await self._send_marks.accept(row.tenant, mark)
        steps = tuple(row._replace(output=outputs[row.sid]) if row.unnamed else row for row in item.step_rows)
        return replace(item, step_rows=steps)

    def of(self, lease: Lease, decision: Decision, item: CommitItem, done: Committed) -> None:
        """Note what this commit leaves to do: of a result that was stored in a run that goes on, nothing."""
        if done.is_held and not (item.wait_rows or item.start_rows or item.mark_rows or item.end_row is not None):
            return
        self._ready += [row.id for row in item.start_rows if row.ga is None]
        self._touched.update((row.ga, row.gb) for row in item.start_rows if row.ga is not None)
        gated = lease.gates != NO_GATES
        if gated and (item.end_row is not None or not done.is_held):
            self._touched.add(lease.gates.pair)  # the run has left its slot
        if not gated and done.st == "q" and decision.status is not Status.RUNNING and item.end_row is None:
            self._ready.append(lease.run)  # let go over a delivery: ready again at once
        if item.wait_rows:
            self._set_timers(item)
        if not done.is_held and lease.last_wait is not None:
            self._remember(lease, item, done, lease.last_wait)
        for row in item.wait_rows:
            if row.arming:
                self._look_backs.offer(row.tenant, row.id)
        if item.end_row is not None and self._traces.spans.follows(lease.trace):
            self._traces.held_ended([(lease.tenant, lease.run)])
        self._has_send_marks |= bool(item.mark_rows)
        self._has_run_marks |= item.end_row is not None and lease.parent is not None
        self._has_run_marks |= any(row.idem is not None for row in item.start_rows)  # may have led to a run that exists
        self._has_run_events |= item.end_row is not None and hears_ends(lease.definitions, item.end_row.status)
        if self._ready or self._timers or self._touched:
            self._wake.set()
        if self._has_send_marks or self._has_run_marks or self._has_run_events:
            self._wake.set()

    def _set_timers(self, item: CommitItem) -> None:
        """Whoever is to fire the waits of this commit hears of it."""
        now = self._clock.unix_ms()
        told = now if item.told_s is None else now - (self._clock.monotonic() - item.told_s) * 1_000
        for row in item.wait_rows:
            by_ms = _over_by_ms(row, now)
            if by_ms is None:
                continue
            due_ms = by_ms if row.delay_ms is None or row.kind == "b" else told + row.delay_ms + _STORED_MS
            if row.kind not in _OWN or not self.keep_timer(Timer(due_ms, by_ms, row.id, row.run)):
                self._timers.append((row.run, by_ms))

    def _remember(self, lease: Lease, item: CommitItem, done: Committed, wait: WaitRow) -> None:
        """A run that rests over one wait, which something may end at any time, or time soon."""
        if wait.kind in _RESUMED or (wait.kind in _OWN and _over_by_ms(wait, self._clock.unix_ms()) is not None):
            asleep = Asleep.of(lease, item, done, wait)
            if asleep is not None:
                self.remember(asleep)

    async def run(self) -> None:
        """Carry out what was noted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_commits(), name="aftermath-commits")
            # Apart: a look back may take long, and have to wait for the transactions of others.
            group.create_task(self._look_backs.run(), name="aftermath-look-backs")

    async def _follow_commits(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await _left_to_the_scheduler(self._carry_out())

    async def _carry_out(self) -> None:
        ready, self._ready = self._ready, []
        timers, self._timers = self._timers, []
        self._hints.ready(ready)
        touched, self._touched = self._touched, set()
        await self._gates.grant(touched)
        for run, due_ms in timers:
            self._hints.timers(run, due_ms)
        if self._has_send_marks:
            self._has_send_marks = False
            while await self._send_marks.sweep(0):
                pass
        if self._has_run_events:
            self._has_run_events = False
            while await self._run_events.sweep(0):
                pass
        if self._has_run_marks:
            self._has_run_marks = False
            await self._run_marks.cascade()


def _over_by_ms(wait: WaitRow, now_ms: int) -> int | None:
    """When its time is over for certain; None: not within the horizon."""
    by_ms = wait.at_ms if wait.delay_ms is None else now_ms + wait.delay_ms
    return None if by_ms is None or by_ms > now_ms + TIMER_HORIZON_MS else by_ms


async def _left_to_the_scheduler(work: Awaitable[None]) -> None:
    """Do it, or leave it to the scheduler's sweeps: nothing here may end the process, whatever one run has stored."""
    try:
        await work
    except Unavailable:
        log.warning("left to the scheduler: the database is away")
    except Exception:
        log.exception("left to the scheduler: carrying out what follows a commit failed")
