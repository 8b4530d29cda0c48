"""The timers that this process set for runs that it let go: it wakes them itself, and goes on with them.

A sleep or a backoff that is due within the horizon stays in memory when its commit is done. When it is due, one call of
the database fires it and takes the run's lease: no scheduler, no hint and no claim are between. Nothing depends on
that: who dies with timers in memory leaves them to the schedulers' pass over all partitions, as a lost hint does
(architecture section 5). What is changed is guarded as ever: the wait's row is deleted by whoever comes first, under
the run's lock.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from math import ceil
from typing import NamedTuple
from uuid import UUID

from services.core.domain.errors import Unavailable
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.store.database_clock import DatabaseClock
from services.executor.claim import Claimer
from services.executor.woken import Woken

log = logging.getLogger(__name__)

_MOST = 20_000
_BATCH = 256
_AT_ONCE = 3
"""Calls of the database under way: each waits until the last of its timers is due."""
_AHEAD_MS = 8.0
"""So long before a timer is due the database is asked to fire it: it waits with the commit."""
_SPAN_MS = 4.0
"""Timers that are due within so long are fired together, when the last of them is due."""
_ERROR_MS = 2
"""About how far the estimates of the database's clock are off."""
_AGAIN_MS = (2, 5, 20, 50, 200)
"""Pauses before a timer is tried again whose run another transaction holds. Then it is left to the schedulers."""


class Timer(NamedTuple):
    """A wait that is due at about `due_ms` by the database's clock (unix), and at `by_ms` for certain."""

    due_ms: float
    by_ms: int
    wait: UUID
    run: UUID
    tries: int = 0


class OwnTimers:
    """A heap of timers, and who waits for the nearest."""

    def __init__(self, claimer: Claimer, gates: Gates, hints: Hints, traces: RunTraces, clock: DatabaseClock) -> None:
        self._claimer = claimer
        self._gates = gates
        self._hints = hints
        self._traces = traces
        self._clock = clock
        self._heap: list[Timer] = []
        self._nearer = asyncio.Event()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._over = False

    def keep(self, timer: Timer) -> bool:
        """Fire it when it is due. False: it is a scheduler's."""
        if self._over or len(self._heap) >= _MOST:
            return False
        self._add(timer)
        return True

    def hand_over(self) -> None:
        """Keep none any more: the schedulers are told of those that are held."""
        self._over = True
        heap, self._heap = self._heap, []
        for timer in heap:
            self._hints.timers(timer.run, timer.by_ms)

    async def run(self) -> None:
        """Fire what is due until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._turns.acquire()
                await self._until_due()  # last: what the clock shows may be another thing after a wait
                due, ahead_ms = self._take_due()
                group.create_task(self._in_turn(due, ahead_ms), name="timers-due")

    async def _until_due(self) -> None:
        while True:
            self._nearer.clear()
            pause_s = None if not self._heap else (self._heap[0].due_ms - self._ahead_of_ms()) / 1_000
            if pause_s is not None and pause_s <= 0:
                return
            try:
                async with asyncio.timeout(pause_s):
                    await self._nearer.wait()
            except TimeoutError:
                pass

    def _ahead_of_ms(self) -> float:
        return self._clock.certain_ms() + (_AHEAD_MS if self._claimer.may_wake_ahead else 0.0)

    async def _in_turn(self, due: dict[UUID, Timer], ahead_ms: int) -> None:
        try:
            await self._fire(due, ahead_ms)
        except Unavailable:
            log.warning("timers are left to the schedulers: the database is away, or its clock was set back")
        except Exception:
            log.exception("timers are left to the schedulers", extra={"timers": len(due)})
        finally:
            self._turns.release()

    def _add(self, timer: Timer) -> None:
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._nearer.set()

    def _take_due(self) -> tuple[dict[UUID, Timer], int]:
        """Timers, and in how many milliseconds the last of them will be due."""
        now_ms = self._clock.certain_ms()
        first_ms = self._heap[0].due_ms if self._heap else now_ms
        # What is late does not wait for what is not due.
        until_ms = now_ms if first_ms <= now_ms else first_ms + _SPAN_MS
        due: dict[UUID, Timer] = {}
        while self._heap and self._heap[0].due_ms <= until_ms and len(due) < _BATCH:
            timer = heapq.heappop(self._heap)
            due[timer.wait] = timer
        return due, max(0, ceil(until_ms - now_ms)) + _ERROR_MS if self._claimer.may_wake_ahead else 0

    async def _fire(self, due: dict[UUID, Timer], ahead_ms: int) -> None:
        woken = await self._claimer.wake(list(due), ahead_ms=ahead_ms, traced=self._traces.enabled)
        now_ms = self._clock.unix_ms()
        for wait, left_ms in woken.left:
            timer = due[wait]
            if self._over:
                self._hints.timers(timer.run, timer.by_ms)
            elif left_ms > 0:
                self._add(timer._replace(due_ms=now_ms + left_ms))
            elif timer.tries < len(_AGAIN_MS):
                self._add(timer._replace(due_ms=now_ms + _AGAIN_MS[timer.tries], tries=timer.tries + 1))
        fired = {UUID(int=row["run"].int) for row in woken.fired}
        self._traces.meter.fired(now_ms - timer.due_ms for timer in due.values() if timer.run in fired)
        await self._tell(woken)

    async def _tell(self, woken: Woken) -> None:
        free = [row for row in woken.fired if row["owner"] is None]
        known = {row["id"] for row in woken.runs}
        self._hints.ready([row["run"] for row in free if row["ga"] is None and row["run"] not in known])
        self._hints.delivered((row["run"], row["owner"]) for row in woken.fired)
        self._traces.delivered((row["tenant"], row["run"], row["resolved"]) for row in woken.fired)
        await self._gates.grant((row["ga"], row["gb"]) for row in free)


Keep = Callable[[Timer], bool]
"""`OwnTimers.keep`."""


def keeps_none(_timer: Timer) -> bool:
    """All timers are the schedulers'."""
    return False
