"""The state machine of a run: the table, one cause after another."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.domain import cause as causes
from services.core.domain.cause import Cause
from services.core.domain.effect import EndRun, Memoize, OpenWait, SendEvents, StartChild
from services.core.domain.op import BadStep, EventToSend, Invoke, SendEvent, Sleep
from services.core.domain.run import ACTIVE, TERMINAL, Limits, RunView, Status
from services.core.domain.transition import TABLE, Decision, IllegalTransition, decide
from tests.support.decisions import BOOM, EVERY_CAUSE, NOW, answered, done, kinds, running, waiting


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


@given(output=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
@settings(max_examples=50, deadline=None)
def test_an_output_is_stored_as_the_text_it_came_as(output: object) -> None:
    text = json.dumps(output, ensure_ascii=False)
    (memo,) = decide(running(), answered(done("a", text)), NOW).effects
    assert isinstance(memo, Memoize)
    assert memo.output == text
