"""The state machine of a run: what an answer's ops do in order, answers that repeat themselves, and limits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.core.domain.effect import EndRun, Memoize, OpenWait, RecordAttempt
from services.core.domain.op import OpError, RunCompleted, RunFailed, Sleep, StepFailed, StepOp
from services.core.domain.run import Limits, Status
from services.core.domain.transition import decide
from tests.support.decisions import BOOM, NOW, answered, done, failed, kinds, running, waiting


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
