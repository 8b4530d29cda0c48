"""The state machine of a run: the table, one cause after another, and what an answer's ops do in order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from services.core.domain import cause as causes
from services.core.domain.cause import Answered, Cause, FunctionFailed
from services.core.domain.effect import EndRun, Memoize, OpenWait, RecordAttempt, SendEvents, StartChild
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
    StepCompleted,
    StepFailed,
    StepOp,
    WaitForEvent,
)
from services.core.domain.run import ACTIVE, TERMINAL, Limits, RunView, Status
from services.core.domain.transition import TABLE, Decision, IllegalTransition, decide

NOW = 1_760_000_000_000
BOOM = OpError("Boom", "no")
RESTING_KINDS = {Status.SLEEPING: {"s"}, Status.WAITING: {"e", "c"}, Status.DELAYED: {"b", "d"}}
COUNTED = {"s", "e", "c"}


def running(**fields: object) -> RunView:
    return RunView(**{"status": Status.RUNNING, "max_attempts": 4, **fields})  # type: ignore[arg-type]


def done(step_id: str, output: str = "1") -> StepCompleted:
    return StepCompleted(id=step_id, name=step_id, output=output)


def failed(step_id: str, **fields: object) -> StepFailed:
    return StepFailed(id=step_id, name=step_id, error=BOOM, **fields)  # type: ignore[arg-type]


def waiting(step_id: str, **fields: object) -> WaitForEvent:
    return WaitForEvent(id=step_id, name=step_id, event="paid", **fields)  # type: ignore[arg-type]


def answered(*ops: Op, repeated: tuple[str, ...] = (), wanted: bool = False) -> Answered:
    return Answered(ops, frozenset(repeated), wanted=wanted)


def kinds(decision: Decision) -> list[str]:
    return [type(effect).__name__ for effect in decision.effects]


EVERY_CAUSE: list[Cause] = [
    causes.LeaseTaken(),
    answered(done("a")),
    causes.Reported((done("a"),)),
    causes.Unwound(),
    FunctionFailed(FunctionFault("FunctionTimeout", "no answer")),
    causes.LeaseExpired(),
    causes.Due(),
    causes.Delivered(),
    causes.SlotGranted(),
    causes.LetGo(),
    causes.Resumed(),
    causes.NotBegun(),
    causes.Cancel(),
    causes.DeadlinePassed(),
    causes.Retried(),
]


OF_INVOCATIONS = Answered | FunctionFailed | causes.Reported | causes.Unwound


def test_the_table_knows_every_cause() -> None:
    assert {type(cause) for cause in EVERY_CAUSE} == set(TABLE)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("cause", EVERY_CAUSE, ids=lambda cause: type(cause).__name__)
def test_a_cause_leads_where_the_table_says_or_is_refused(cause: Cause, status: Status, gated: bool) -> None:
    state = RunView(status=status, max_attempts=4, gated=gated)
    ways = TABLE[type(cause)].get(status)
    if ways is None:
        with pytest.raises(IllegalTransition):
            decide(state, cause, NOW)
        return
    decision = decide(state, cause, NOW)
    assert decision.status in ways
    assert decision.status.is_terminal == any(isinstance(effect, EndRun) for effect in decision.effects)


@pytest.mark.parametrize("cause", [causes.LeaseExpired(), causes.LetGo()])
def test_what_a_worker_executes_is_kept_for_it_and_is_no_attempt_yet(cause: Cause) -> None:
    state = RunView(status=Status.RUNNING, max_attempts=1, streamed=True)
    assert decide(state, cause, NOW).status is Status.PARKED
    back = decide(RunView(status=Status.PARKED, max_attempts=2), causes.Due(), NOW)
    assert (back.status, back.function_failures) == (Status.QUEUED, 1)
    assert decide(RunView(status=Status.PARKED, max_attempts=1), causes.Due(), NOW).status is Status.FAILED


def test_an_ended_run_leaves_only_by_retried_and_a_completed_one_never() -> None:
    for status in TERMINAL:
        leaving = {type(cause) for cause in EVERY_CAUSE if status in TABLE[type(cause)]}
        assert leaving == (set() if status is Status.COMPLETED else {causes.Retried})


def test_every_active_status_can_be_cancelled_and_can_time_out() -> None:
    for status in ACTIVE:
        view = RunView(status=status, max_attempts=1)
        assert decide(view, causes.Cancel(), NOW).effects == (EndRun(),)
        (end,) = decide(view, causes.DeadlinePassed(), NOW).effects
        assert isinstance(end, EndRun)
        assert end.error is not None
        assert end.error.name == "RunTimeout"


# ---- one answer


def test_a_result_is_memoized_and_the_run_goes_on_under_the_lease() -> None:
    decision = decide(running(steps=3, function_failures=2, repeats=1), answered(done("a", '{"x":1}')), NOW)
    (memo,) = decision.effects
    assert memo == Memoize(id="a", name="a", kind="r", seq=3, output='{"x":1}')
    assert (decision.status, decision.steps, decision.function_failures, decision.repeats) == (Status.RUNNING, 4, 0, 0)


def test_a_run_whose_slot_is_wanted_yields_only_if_it_has_a_gate() -> None:
    wanted = answered(done("a"), wanted=True)
    assert decide(running(gated=True), wanted, NOW).status is Status.BLOCKED
    assert decide(running(gated=False), wanted, NOW).status is Status.RUNNING


@pytest.mark.parametrize("gated", [False, True])
def test_c17_a_lost_worker_is_an_attempt_without_backoff_that_keeps_its_place_in_the_gate(gated: bool) -> None:
    decision = decide(running(gated=gated, function_failures=2), causes.LeaseExpired(), NOW)
    assert decision.status is Status.QUEUED
    assert kinds(decision) == ["RecordAttempt"]
    assert decision.function_failures == 3


def test_a_lost_worker_at_the_last_attempt_ends_the_run() -> None:
    decision = decide(running(max_attempts=1), causes.LeaseExpired(), NOW)
    assert decision.status is Status.FAILED
    assert kinds(decision) == ["RecordAttempt", "EndRun"]


def test_o8_letting_go_is_no_attempt() -> None:
    decision = decide(running(function_failures=2, steps=5), causes.LetGo(), NOW)
    assert decision == Decision(Status.QUEUED, (), function_failures=2, steps=5)


def test_a_sleep_opens_the_wait_that_wakes_it() -> None:
    (wait,) = decide(running(), answered(Sleep(id="z", name="z", for_ms=5)), NOW).effects
    assert isinstance(wait, OpenWait)
    assert (wait.kind, wait.delay_ms, wait.at_ms) == ("s", 5, None)
    (wait,) = decide(running(), answered(Sleep(id="z", name="z", until_ms=NOW + 1)), NOW).effects
    assert isinstance(wait, OpenWait)
    assert (wait.kind, wait.delay_ms, wait.at_ms) == ("s", None, NOW + 1)


def test_a_sleep_of_zero_and_one_until_a_time_that_has_come_are_over_at_once() -> None:
    for op in (Sleep(id="z", name="z", for_ms=0), Sleep(id="z", name="z", until_ms=NOW)):
        decision = decide(running(), answered(op), NOW)
        assert decision.status is Status.RUNNING
        (memo,) = decision.effects
        assert isinstance(memo, Memoize)
        assert (memo.kind, memo.output) == ("s", "null")


def test_c21_a_time_that_the_database_has_not_told_yet_is_left_to_it() -> None:
    decision = decide(running(), answered(Sleep(id="z", name="z", until_ms=NOW + 1)), NOW)
    assert decision.status is Status.SLEEPING


def test_a_wait_without_a_timeout_gets_the_default_and_an_invoke_too() -> None:
    limits = Limits(default_wait_ms=77)
    for op in (waiting("w"), Invoke(id="w", name="w", workflow="child")):
        wait = decide(running(limits=limits), answered(op), NOW).effects[0]
        assert isinstance(wait, OpenWait)
        assert wait.delay_ms == 77
    given_ = decide(running(limits=limits), answered(waiting("w", timeout_ms=5)), NOW).effects[0]
    assert isinstance(given_, OpenWait)
    assert given_.delay_ms == 5


def test_an_invoke_starts_the_child_that_it_waits_for() -> None:
    decision = decide(running(), answered(Invoke(id="c", name="c", workflow="child", data='{"n":1}')), NOW)
    wait, child = decision.effects
    assert isinstance(wait, OpenWait)
    assert wait.kind == "c"
    assert child == StartChild(id="c", workflow="child", data='{"n":1}')
    assert decision.status is Status.WAITING


def test_c13_sent_events_travel_with_their_step() -> None:
    op = SendEvent(id="s", name="s", events=(EventToSend(name="a.b", data='{"k":1}'),))
    decision = decide(running(), answered(op), NOW)
    assert kinds(decision) == ["Memoize", "SendEvents"]
    assert decision.effects[1] == SendEvents(id="s", events=op.events)
    assert decision.status is Status.RUNNING


def test_a_bad_step_is_memoized_as_failed_and_what_follows_it_is_discarded() -> None:
    bad = BadStep(id="b", name="b", error=BOOM, kind="sleep")
    decision = decide(running(), answered(done("a"), bad, done("c")), NOW)
    assert [effect.id for effect in decision.effects if isinstance(effect, Memoize)] == ["a", "b"]
    memo = decision.effects[1]
    assert isinstance(memo, Memoize)
    assert (memo.kind, memo.error, memo.output) == ("s", BOOM, None)
    assert (decision.status, decision.steps) == (Status.RUNNING, 2)


# ---- several ops of one answer (S10)


def test_s10_ops_are_applied_in_order_each_with_its_own_place() -> None:
    decision = decide(running(steps=7), answered(done("a"), done("b"), waiting("w")), NOW)
    places = [effect.seq for effect in decision.effects if isinstance(effect, Memoize | OpenWait)]
    assert places == [7, 8, 9]
    assert (decision.status, decision.steps) == (Status.WAITING, 10)


def test_s10_memoized_ops_of_an_answer_are_skipped_and_the_others_applied() -> None:
    decision = decide(running(steps=1, repeats=2), answered(done("a"), done("b"), repeated=("a",)), NOW)
    assert [effect.id for effect in decision.effects if isinstance(effect, Memoize)] == ["b"]
    assert (decision.steps, decision.repeats) == (2, 0)


def test_s10_the_end_of_a_run_takes_its_earlier_ops_along() -> None:
    decision = decide(running(), answered(done("a"), RunCompleted(output='"o"')), NOW)
    assert kinds(decision) == ["Memoize", "EndRun"]
    assert decision.effects[-1] == EndRun(output='"o"')


def test_progress_in_the_same_answer_forgives_earlier_failures_of_the_function() -> None:
    op = RunFailed(error=BOOM)
    assert decide(running(function_failures=3), answered(op), NOW).status is Status.FAILED
    decision = decide(running(function_failures=3), answered(done("a"), op), NOW)
    assert (decision.status, decision.function_failures) == (Status.DELAYED, 1)


# ---- answers that repeat themselves


def test_c28_the_third_repeated_answer_in_a_row_fails_the_run_and_names_the_step() -> None:
    state = running(function_failures=1)
    for expected in (1, 2):
        decision = decide(state, answered(done("a"), repeated=("a",)), NOW)
        assert (decision.status, decision.effects, decision.repeats) == (Status.RUNNING, (), expected)
        assert decision.function_failures == 1
        state = replace(state, repeats=decision.repeats)
    decision = decide(state, answered(done("a"), repeated=("a",)), NOW)
    attempt, end = decision.effects
    assert decision.status is Status.FAILED
    assert isinstance(end, EndRun)
    assert end.error is not None
    assert end.error.name == "NonDeterminismError"
    assert "'a'" in end.error.message
    assert isinstance(attempt, RecordAttempt)
    assert attempt.number == 2


def test_something_new_ends_the_row_of_repeated_answers() -> None:
    assert decide(running(repeats=2), answered(done("b")), NOW).repeats == 0
    assert decide(running(repeats=2), answered(waiting("b")), NOW).repeats == 0
    assert decide(running(repeats=2), answered(failed("b")), NOW).repeats == 0


# ---- limits: at the limit, and one over


def test_the_last_allowed_step_is_stored_and_one_more_fails_the_run() -> None:
    limits = Limits(max_steps=3)
    at = decide(running(steps=2, limits=limits), answered(done("c")), NOW)
    assert (at.status, at.steps) == (Status.RUNNING, 3)
    over = decide(running(steps=3, limits=limits), answered(done("d")), NOW)
    assert (over.status, over.steps) == (Status.FAILED, 3)
    assert kinds(over) == ["RecordAttempt", "EndRun"]
    end = over.effects[-1]
    assert isinstance(end, EndRun)
    assert end.error is not None
    assert end.error.name == "LimitExceeded"
    assert "number 4" in end.error.message
    assert "at most 3" in end.error.message
    assert "step.invoke" in end.error.message


@pytest.mark.parametrize("op", [waiting("d"), failed("d"), Sleep(id="d", name="d", for_ms=1)], ids=lambda op: type(op))
def test_no_kind_of_step_passes_the_limit(op: StepOp) -> None:
    decision = decide(running(steps=3, limits=Limits(max_steps=3)), answered(op), NOW)  # type: ignore[arg-type]
    assert decision.status is Status.FAILED
    assert not any(isinstance(effect, OpenWait | Memoize) for effect in decision.effects)


def test_a_run_at_its_step_limit_can_still_complete() -> None:
    decision = decide(running(steps=3, limits=Limits(max_steps=3)), answered(RunCompleted()), NOW)
    assert decision.status is Status.COMPLETED


@pytest.mark.parametrize("output", ['"aaaaa"', '"äää"'], ids=["ascii", "two-byte letters"])
def test_state_counts_bytes_up_to_and_at_the_limit(output: str) -> None:
    size = len(output.encode())
    fits = decide(running(state_bytes=10, limits=Limits(max_state_bytes=10 + size)), answered(done("a", output)), NOW)
    assert fits.status is Status.RUNNING
    over = decide(running(state_bytes=10, limits=Limits(max_state_bytes=9 + size)), answered(done("a", output)), NOW)
    assert over.status is Status.FAILED
    end = over.effects[-1]
    assert isinstance(end, EndRun)
    assert end.error is not None
    assert f"{10 + size} bytes" in end.error.message
    assert f"at most {9 + size}" in end.error.message


def test_failures_that_are_stored_count_in_bytes_too() -> None:
    op = StepFailed(id="a", name="a", error=OpError("É", "ü"), non_retriable=True)
    assert decide(running(limits=Limits(max_state_bytes=4)), answered(op), NOW).status is Status.RUNNING
    assert decide(running(limits=Limits(max_state_bytes=3)), answered(op), NOW).status is Status.FAILED


def test_s10_what_follows_an_op_over_the_limit_is_discarded() -> None:
    limits = Limits(max_steps=2)
    decision = decide(running(steps=1, limits=limits), answered(done("a"), done("b"), RunCompleted()), NOW)
    assert decision.status is Status.FAILED
    assert [effect.id for effect in decision.effects if isinstance(effect, Memoize)] == ["a"]


# ---- any sequence of causes

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


@given(output=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
@settings(max_examples=50, deadline=None)
def test_an_output_is_stored_as_the_text_it_came_as(output: object) -> None:
    text = json.dumps(output, ensure_ascii=False)
    (memo,) = decide(running(), answered(done("a", text)), NOW).effects
    assert isinstance(memo, Memoize)
    assert memo.output == text
