"""The ops of one invocation over the worker stream: their numbers and acknowledgements, and when nothing is left to do.

All methods are called on the loop of the connection. User code runs elsewhere (`async_calls`, `sync_calls`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from ..replay import FailedAttempt, Report, report_of_error
from .live_replay import LiveReplay, Stored, TooLarge, is_too_large

IDLE_S = 0.005
"""How long an invocation is blocked in open steps alone before it is unwound: its own tasks may be about to go on."""


class Key(NamedTuple):
    """What an invocation is called on the stream: the run, its lease, and a count within the lease."""

    run_id: str
    epoch: int
    invocation: int


class Outcome(IntEnum):
    """What became of an op; the values are those of `AckOutcome`."""

    COMMITTED = 1
    ALREADY = 2
    ABANDONED = 3


class Answer(Protocol):
    """A step call that waits."""

    def give(self, stored: Stored | None) -> None:
        """Lets it go on."""

    def interrupt(self) -> None:
        """The invocation is over: it never goes on, other than by being unwound."""


@dataclass(slots=True)
class LiveOp:
    """One op on its way. Without a step id it is the end of the run, with the workflow's result or error."""

    text: bytes
    step_id: str | None = None
    answer: Answer | None = None
    has_result: bool = False
    """Whether a commit says all: the step has completed with the output in the op."""
    failure: FailedAttempt | None = None
    number: int = 0
    last: bool = False
    counted: bool = False
    """Whether a stream counts it as not acknowledged; the outbox's own."""


class Outlet(Protocol):
    """The stream of an invocation."""

    def send_op(self, key: Key, op: LiveOp) -> None:
        """Sends an op, when there is room for it."""

    def send_end(self, key: Key, *, again: bool = False) -> None:
        """Sends that the invocation is over; `again`: and has to be begun anew at once."""

    def settled(self, op: LiveOp) -> None:
        """The op needs no acknowledgement any more."""


def _nothing() -> None:
    """What is left to unwind of what has been unwound."""


class LiveInvocation:
    """One invocation on the worker's side.

    `unwind` is called once, when user code has nothing left to do; `over` when the engine need not hear of it again.
    `failed` is told of each failed attempt as it is sent.
    """

    def __init__(
        self,
        key: Key,
        replay: LiveReplay,
        outlet: Outlet,
        *,
        unwind: Callable[[], None],
        over: Callable[[LiveInvocation], None],
        failed: Callable[[FailedAttempt], None],
    ) -> None:
        self.key = key
        self.outlet: Outlet | None = outlet
        """None while there is no stream, or a new one has not taken the invocation over yet."""
        self.unacked: dict[int, LiveOp] = {}
        self.is_abandoned = False
        self.has_ended = False
        """Whether the end was sent apart from an op."""
        self.holds_back = False
        """Whether code waits that goes on in the next invocation: nothing but what has begun is done in this one."""
        self.has_progressed = False
        """Whether an op was sent, or a result delivered: the next invocation knows more than this one did."""
        self._replay = replay
        self._unwind = unwind
        self._over = over
        self._failed = failed
        self._sent = 0
        self._has_opened = replay.has_open
        """Whether steps are open, or may be: the engine lets a run rest that ends its invocation in an op."""
        self._waiting: dict[str, Answer] = {}
        self._delivered: dict[str, Stored] = {}
        self._held: LiveOp | None = None
        self._activity = 0
        self._idle: asyncio.TimerHandle | None = None

    def submit(self, op: LiveOp, *, rests: bool = False, passes: int = 0, goes_alone: bool = False) -> None:
        """Sends the op of a step call.

        `rests`: the code that makes the call is the only code that is known, and the engine will not answer at once:
        the op is the last one, unless other code turns up within `passes` passes of the loop. `goes_alone`: nothing
        but this step is done in this invocation.
        """
        if op.step_id is not None:
            self._replay.busy.pop(op.step_id, None)
        if self._replay.over:
            if op.answer is not None:
                op.answer.interrupt()
            return
        self._activity += 1
        if self._held is not None:
            self._send_held()
        if rests and passes and self._is_alone():
            self._held = op
            asyncio.get_running_loop().call_soon(self._decide, op, passes)
            return
        self.holds_back = self.holds_back or goes_alone
        self._replay.closing = self._replay.closing or self.holds_back
        leaves = self._replay.closing and self._replay.op is None and not self._replay.busy
        if self.holds_back and self._has_opened:
            leaves = False  # the run would rest, and other code of it has something to do
        self._send(op, last=leaves or (rests and self._close_if_alone()))
        if self._replay.op is not None:
            self.look()

    def open(self, step_id: str, answer: Answer) -> None:
        """A call waits for a step that was open before this invocation began."""
        self._activity += 1
        if self._replay.over:
            answer.interrupt()
            return
        self._wait(step_id, answer)
        self.look()

    def hold(self) -> None:
        """A call has come that is not made in the order of a replay: its code goes on in the next invocation.

        What is executed ends and is sent. Until something of it has, the call waits: the code may have to go on here
        if nothing comes of that.
        """
        self._activity += 1
        self.holds_back = True
        if self.has_progressed:
            self._replay.closing = True

    def starts_over(self) -> bool:
        """Whether nothing has come of what was begun. Then the calls that wait have their turns, as if nothing was."""
        idle = self._is_alone() and not self.has_progressed and not self._replay.is_closed
        if idle:
            self.holds_back = False
        return idle

    def left(self, step_id: str) -> None:
        """A body has ended, and there is nothing to send."""
        self._replay.busy.pop(step_id, None)
        self.look()

    def concluded(self, report: Report) -> None:
        """The workflow function has returned or raised. That is the end, unless steps are not done: they came first."""
        replay = self._replay
        if replay.over:
            return
        self._send_held()
        if is_too_large(report):
            report = report_of_error(TooLarge("the workflow's result", report))
        if not replay.is_closed and self._close_if_alone():
            replay.op, replay.failure = report.text, report.failure
        replay.closing = True
        self.look()

    def leave(self) -> None:
        """No step begins any more; the invocation ends when those that are executed are acknowledged."""
        self._replay.closing = True
        self._send_held()
        self.look()

    def acked(self, number: int, outcome: Outcome, *, leave: bool, step: bytes | None) -> None:
        """What became of an op. One that is acknowledged twice is acknowledged once."""
        op = self.unacked.get(number)
        if op is None:
            return
        if outcome == Outcome.ABANDONED and not self._replay.over:
            self.abandon()
            return
        del self.unacked[number]
        self._settled(op)
        if self._replay.over:
            self._forget_if_done()
            return
        self._activity += 1
        if leave:
            self._replay.closing = True
        if not self._replay.closing and op.answer is not None and op.step_id is not None:
            if step is not None:
                op.answer.give(json.loads(step))
            elif op.has_result:
                op.answer.give(None)
            else:
                self._wait(op.step_id, op.answer)
        elif op.answer is not None:
            op.answer.interrupt()
        if self._waiting or self._replay.is_closed:
            self.look()

    def delivered(self, step_id: str, step: bytes) -> None:
        """A step that was open has got its result."""
        self._activity += 1
        self.has_progressed = True
        self._replay.closing = self._replay.closing or self.holds_back
        stored: Stored = json.loads(step)
        answer = self._waiting.pop(step_id, None)
        if answer is None:
            self._delivered[step_id] = stored
        elif self._replay.closing:
            answer.interrupt()
        else:
            answer.give(stored)
        if answer is not None or self.holds_back:
            self.look()

    @property
    def goes_on_anew(self) -> bool:
        """Whether the next invocation, begun at once, has something to do."""
        return self.holds_back and self.has_progressed

    def abandon(self) -> None:
        """Nothing of the invocation counts any more."""
        if self.is_abandoned:
            return
        self.is_abandoned = True
        blocked = list(self.unacked.values())
        for op in reversed(blocked):  # from the end, so that no room is made for those that have not been sent
            self._settled(op)
        self.unacked.clear()
        self._finish(blocked)
        self._over(self)

    def suspend(self) -> None:
        """Its stream is gone: ops collect until `resume`."""
        self.outlet = None
        for op in self.unacked.values():
            op.counted = False

    def resume(self, key: Key, outlet: Outlet, sent: int) -> None:
        """A stream has taken the invocation over, with the ops up to this number."""
        self.key, self.outlet = key, outlet
        for op in self.unacked.values():
            if op.number > sent:
                outlet.send_op(key, op)

    def look(self, *, is_blocked: bool = False) -> None:
        """Ends the invocation if nothing is left to do. `is_blocked`: it was blocked in open steps for a while."""
        replay = self._replay
        if replay.over or self._held is not None:
            return
        with replay.lock:
            if replay.busy:
                return
            verdict = replay.op
            is_blocked = is_blocked and bool(self._waiting)
            leaves = verdict is not None or ((replay.closing or is_blocked) and not self.unacked)
            replay.closing = replay.closing or leaves
        if verdict is not None:
            self._send(LiveOp(verdict.encode(), failure=replay.failure), last=True)
        elif leaves:
            self._end()
        elif self._waiting and not self.unacked and self._idle is None:
            self._watch()

    def _is_alone(self) -> bool:
        """Whether nothing is executed, not acknowledged, or open."""
        return not (self._replay.busy or self.unacked or self._waiting or self._held)

    def _close_if_alone(self) -> bool:
        with self._replay.lock:
            alone = self._is_alone()
            self._replay.closing = self._replay.closing or alone
            return alone

    def _decide(self, op: LiveOp, passes: int) -> None:
        if self._held is not op:
            return
        if passes > 1:
            asyncio.get_running_loop().call_soon(self._decide, op, passes - 1)
            return
        self._held = None
        may_be_last = self.holds_back or not self._replay.closing
        self._send(op, last=may_be_last and self._replay.op is None and self._close_if_alone())
        self.look()

    def _send_held(self) -> None:
        op, self._held = self._held, None
        if op is not None:
            self._send(op, last=False)

    def _send(self, op: LiveOp, *, last: bool) -> None:
        self._sent += 1
        self.has_progressed = True
        self._has_opened = self._has_opened or not op.has_result
        op.number, op.last = self._sent, last
        self.unacked[op.number] = op
        if op.failure is not None:
            self._failed(op.failure)
        if self.outlet is not None:
            self.outlet.send_op(self.key, op)
        if last:
            self._finish(list(self.unacked.values()))

    def _end(self) -> None:
        self.has_ended = True
        if self.outlet is not None:
            self.outlet.send_end(self.key, again=self.goes_on_anew)
        self._finish([])
        self._over(self)

    def _finish(self, blocked: list[LiveOp]) -> None:
        if self._replay.over:
            return
        unwind, self._unwind = self._unwind, _nothing  # it leads back to this
        unwind()
        self._replay.closing = self._replay.over = True
        if self._idle is not None:
            self._idle.cancel()
        answers = [op.answer for op in (*blocked, self._held) if op is not None and op.answer is not None]
        self._held = None
        for answer in (*answers, *self._waiting.values()):
            answer.interrupt()
        self._waiting.clear()

    def _forget_if_done(self) -> None:
        if not self.unacked and not self.is_abandoned:
            self._over(self)

    def _settled(self, op: LiveOp) -> None:
        if self.outlet is not None:
            self.outlet.settled(op)

    def _wait(self, step_id: str, answer: Answer) -> None:
        stored = self._delivered.pop(step_id, None)
        if stored is not None and not self._replay.closing:
            answer.give(stored)
        else:
            self._waiting[step_id] = answer

    def _watch(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._watched, self._activity)

    def _watched(self, activity: int) -> None:
        self._idle = None
        self.look(is_blocked=activity == self._activity)
