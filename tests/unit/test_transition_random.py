"""The state machine of a run: any sequence of causes."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.core.domain import cause as causes
from services.core.domain.cause import Answered, Cause, FunctionFailed
from services.core.domain.effect import EndRun, Memoize, OpenWait, RecordAttempt, StartChild
from services.core.domain.op import (
    BadStep,
    EventToSend,
    FunctionFault,
    Invoke,
    Op,
    OpError,
    RunCompleted,
    RunFailed,
    SendEvent,
    Sleep,
    StepOp,
)
from services.core.domain.run import ACTIVE, TERMINAL, Limits, RunView, Status
from services.core.domain.transition import TABLE, Decision, IllegalTransition, decide
from tests.support.decisions import BOOM, EVERY_CAUSE, NOW, OF_INVOCATIONS, done, failed, waiting

RESTING_KINDS = {Status.SLEEPING: {"s"}, Status.WAITING: {"e", "c"}, Status.DELAYED: {"b", "d"}}
COUNTED = {"s", "e", "c"}


IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
JITTER = st.floats(0.8, 1.2)
FIRST = IDS.flatmap(lambda i: st.builds(done, st.just(i), st.sampled_from(["null", '"x"', "[1]"])))
LAST = st.one_of(
    IDS.flatmap(
        lambda i: st.one_of(
            st.builds(
                failed,
                st.just(i),
                non_retriable=st.booleans(),
                max_attempts=st.none() | st.integers(1, 4),
                retry_after_ms=st.none() | st.integers(0, 10**9),
            ),
            st.builds(Sleep, id=st.just(i), name=st.just(i), for_ms=st.integers(0, 10**9)),
            st.builds(Sleep, id=st.just(i), name=st.just(i), until_ms=st.integers(0, 2 * NOW)),
            st.builds(waiting, st.just(i), timeout_ms=st.none() | st.integers(1, 10**9)),
            st.builds(Invoke, id=st.just(i), name=st.just(i), workflow=st.just("child")),
            st.builds(SendEvent, id=st.just(i), name=st.just(i), events=st.just((EventToSend(name="e"),))),
            st.builds(
                BadStep, id=st.just(i), name=st.just(i), error=st.just(BOOM), kind=st.sampled_from(["run", "sleep"])
            ),
        )
    ),
    st.builds(RunCompleted),
    st.builds(RunFailed, error=st.just(BOOM), non_retriable=st.booleans()),
)


def op_key(op: Op) -> str:
    return op.id if isinstance(op, StepOp) else type(op).__name__


ANSWERS = st.builds(
    lambda first, last: (*first, *last), st.lists(FIRST, max_size=3), st.lists(LAST, max_size=1)
).filter(lambda ops: ops and len({op_key(op) for op in ops}) == len(ops))


class AnyLife(RuleBasedStateMachine):
    """A run whose store is a dict: whatever happens to it, and in whatever order, its invariants hold."""

    def __init__(self) -> None:
        super().__init__()
        self.status = Status.QUEUED
        self.max_attempts = 3
        self.memo: dict[str, tuple[str | None, OpError | None]] = {}
        self.waits: dict[str, OpenWait] = {}
        self.steps = 0
        self.function_failures = 0
        self.repeats = 0
        self.failing: dict[str, int] = {}
        self.rested: OpenWait | None = None
        self.attempts = 0

    def view(self) -> RunView:
        return RunView(
            status=self.status,
            max_attempts=self.max_attempts,
            function_failures=self.function_failures,
            repeats=self.repeats,
            steps=self.steps,
            step_failures=self.failing,
            limits=Limits(max_steps=5),
        )

    def take(self, cause: Cause) -> None:
        ways = TABLE[type(cause)].get(self.status)
        before = (self.status, dict(self.memo), dict(self.waits))
        if ways is None:
            with pytest.raises(IllegalTransition):
                decide(self.view(), cause, NOW)
            assert before == (self.status, self.memo, self.waits)
            return
        decision = decide(self.view(), cause, NOW)
        assert decision.status in ways
        self.carry_out(decision)

    def carry_out(self, decision: Decision) -> None:
        opened = [effect for effect in decision.effects if isinstance(effect, OpenWait)]
        children = [effect.id for effect in decision.effects if isinstance(effect, StartChild)]
        ends = [effect for effect in decision.effects if isinstance(effect, EndRun)]
        assert len(ends) == int(decision.status.is_terminal)
        if decision.status in RESTING_KINDS and decision.status is not self.status:
            (self.rested,) = opened
            assert self.rested.kind in RESTING_KINDS[decision.status]
            assert (self.rested.delay_ms is None) != (self.rested.at_ms is None)
        else:
            assert not opened
        assert children == [wait.id for wait in opened if wait.kind == "c"]
        for effect in decision.effects:
            match effect:
                case Memoize():
                    assert effect.id not in self.memo, "a memoized step never changes"
                    assert effect.id not in self.waits
                    assert effect.kind == "n" or (effect.output is None) != (effect.error is None)
                    self.memo[effect.id] = (effect.output, effect.error)
                    self.failing.pop(effect.id, None)
                case OpenWait():
                    assert effect.id not in self.memo
                    self.waits[effect.id] = effect
                case RecordAttempt(step_id=None):
                    assert 1 <= effect.number <= self.max_attempts
                    self.attempts += 1
                case RecordAttempt(step_id=str() as step_id):
                    assert effect.number == self.failing.get(step_id, 0) + 1
                    assert effect.number <= 4
                    if step_id not in self.memo:
                        self.failing[step_id] = effect.number
                case EndRun():
                    self.waits.clear()
                    if decision.status is Status.COMPLETED:
                        assert effect.output is not None
                    assert (effect.error is not None) == (decision.status in {Status.FAILED, Status.TIMED_OUT})
        self.status, self.steps = decision.status, decision.steps
        self.function_failures, self.repeats = decision.function_failures, decision.repeats
        self.failing = {step: n for step, n in self.failing.items() if step not in self.memo}

    @rule(ops=ANSWERS, jitter=JITTER, wanted=st.booleans())
    def answer(self, ops: tuple[Op, ...], jitter: float, wanted: bool) -> None:
        repeated = frozenset(op.id for op in ops if isinstance(op, StepOp)) & self.memo.keys()
        self.take(Answered(ops, repeated, jitter, wanted))

    @rule(jitter=JITTER)
    def fail(self, jitter: float) -> None:
        self.take(FunctionFailed(FunctionFault("FunctionTimeout", "no answer"), jitter))

    @rule(cause=st.sampled_from([cause for cause in EVERY_CAUSE if not isinstance(cause, OF_INVOCATIONS)]))
    def anything(self, cause: Cause) -> None:
        if isinstance(cause, causes.Due | causes.Delivered) and self.waits:
            return  # they come with the end of a wait: see `wake`
        if isinstance(cause, causes.Retried) and self.status in TABLE[causes.Retried]:
            self.steps = len(self.memo)
            self.function_failures = self.repeats = 0
            self.failing.clear()
        self.take(cause)

    @precondition(lambda self: self.waits)
    @rule(by_time=st.booleans())
    def wake(self, by_time: bool) -> None:
        wait = next(iter(self.waits.values()))
        if not by_time and wait.kind not in {"e", "c"}:
            return
        del self.waits[wait.id]
        if wait.kind in COUNTED:
            self.memo[wait.id] = ("null", None)
        resting = self.status in RESTING_KINDS
        self.take(causes.Due() if by_time else causes.Delivered())
        assert not resting or self.status in {Status.QUEUED, Status.BLOCKED}, "what a run rests on wakes it"

    @precondition(lambda self: self.status is Status.QUEUED)
    @rule()
    def claim(self) -> None:
        self.take(causes.LeaseTaken())
        assert self.status is Status.RUNNING

    @invariant()
    def steps_are_what_is_stored_and_what_is_open(self) -> None:
        if self.status in ACTIVE:
            assert self.steps == len(self.memo) + sum(wait.kind in COUNTED for wait in self.waits.values())

    @invariant()
    def a_resting_run_has_the_wait_that_will_wake_it(self) -> None:
        if self.status in RESTING_KINDS:
            assert self.rested in self.waits.values()

    @invariant()
    def an_ended_run_has_nothing_open(self) -> None:
        assert self.status in ACTIVE or not self.waits

    @invariant()
    def attempts_are_bounded(self) -> None:
        assert self.function_failures <= self.max_attempts
        assert self.function_failures < self.max_attempts or self.status in TERMINAL
        assert self.repeats < 3 or self.status is Status.FAILED


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
