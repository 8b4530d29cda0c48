"""Failed attempts: which are tried again, when, and which are the last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.attempt import function_attempt, run_failed, step_failed
from services.core.domain.effect import EndRun, Memoize, OpenWait, RecordAttempt
from services.core.domain.op import OpError, RunFailed, StepFailed
from services.core.domain.run import RunView, Status

BOOM = OpError("Boom", "no")


def state(max_attempts: int = 4, **fields: object) -> RunView:
    return RunView(status=Status.RUNNING, max_attempts=max_attempts, **fields)  # type: ignore[arg-type]


def step(**fields: object) -> StepFailed:
    return StepFailed(id="charge", name="charge", error=BOOM, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failures", "base_s"),
    [(1, 2), (2, 4), (3, 8), (8, 256), (9, 512), (10, 600), (11, 600), (64, 600), (1100, 600)],
)
@pytest.mark.parametrize("jitter", [0.8, 1.0, 1.2])
def test_case_29_backoff_of_steps_and_of_the_function(failures: int, base_s: int, jitter: float) -> None:
    view = state(5000, function_failures=failures - 1, step_failures={"charge": failures - 1})
    pause = function_attempt(view, BOOM, jitter=jitter).effects[1]
    (_, wait), final = step_failed(view, step(), jitter=jitter, seq=0)
    assert not final
    for each in (pause, wait):
        assert isinstance(each, OpenWait)
        assert each.delay_ms == round(base_s * 1000 * jitter)


@given(attempts=st.integers(1, 21), jitter=st.floats(0.8, 1.2))
def test_a_step_is_attempted_exactly_as_often_as_allowed(attempts: int, jitter: float) -> None:
    failures: dict[str, int] = {}
    for number in range(1, attempts + 1):
        effects, final = step_failed(state(attempts, step_failures=failures), step(), jitter=jitter, seq=3)
        assert final == (number == attempts)
        record, then = effects
        assert isinstance(record, RecordAttempt)
        assert record.number == number
        assert isinstance(then, Memoize if final else OpenWait)
        failures["charge"] = number


@given(attempts=st.integers(1, 21), jitter=st.floats(0.8, 1.2))
def test_a_function_is_attempted_exactly_as_often_as_allowed(attempts: int, jitter: float) -> None:
    failures = 0
    for number in range(1, attempts + 1):
        outcome = function_attempt(state(attempts, function_failures=failures), BOOM, jitter=jitter)
        assert (outcome.status is Status.FAILED) == (number == attempts)
        assert (outcome.status is Status.DELAYED) == (number < attempts)
        failures = outcome.function_failures
        assert failures == number


@pytest.mark.parametrize(("of_step", "of_workflow"), [(1, 21), (21, 1), (2, 1)])
def test_a_steps_own_max_attempts_stands_before_the_workflows(of_step: int, of_workflow: int) -> None:
    for failures in range(of_step):
        view = state(of_workflow, step_failures={"charge": failures})
        _, final = step_failed(view, step(max_attempts=of_step), jitter=1.0, seq=0)
        assert final == (failures + 1 == of_step)


def test_failures_of_other_steps_do_not_count() -> None:
    _, final = step_failed(state(2, step_failures={"ship": 1}), step(), jitter=1.0, seq=0)
    assert not final


def test_what_is_not_retriable_is_final_at_the_first_attempt() -> None:
    (_, memo), final = step_failed(state(), step(non_retriable=True), jitter=1.0, seq=9)
    assert final
    assert isinstance(memo, Memoize)
    assert (memo.error, memo.output, memo.attempts, memo.seq) == (BOOM, None, 1, 9)
    outcome = run_failed(state(), RunFailed(error=BOOM, non_retriable=True), jitter=1.0, steps=2)
    assert outcome.status is Status.FAILED
    assert outcome.effects[-1] == EndRun(error=BOOM)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"retry_after_ms": 0}, (0, None)),
        ({"retry_after_ms": 86_400_000}, (86_400_000, None)),
        ({"retry_at_ms": 1}, (None, 1)),
    ],
)
def test_the_time_that_was_asked_for_stands_before_the_backoff(
    asked: dict[str, int], expected: tuple[int | None, int | None]
) -> None:
    (_, wait), _ = step_failed(state(), step(**asked), jitter=1.2, seq=0)
    pause = run_failed(state(), RunFailed(error=BOOM, **asked), jitter=1.2, steps=0).effects[1]  # type: ignore[arg-type]
    for each, kind in ((wait, "b"), (pause, "d")):
        assert isinstance(each, OpenWait)
        assert (each.kind, each.delay_ms, each.at_ms) == (kind, *expected)


def test_the_time_that_was_asked_for_does_not_make_a_last_attempt_another() -> None:
    _, final = step_failed(state(1), step(retry_after_ms=5), jitter=1.0, seq=0)
    assert final
    assert run_failed(state(1), RunFailed(error=BOOM, retry_after_ms=5), jitter=1.0, steps=0).status is Status.FAILED


def test_a_warning_stays_with_the_attempt() -> None:
    (record, _), _ = step_failed(state(), step(warning="retry_after ignored"), jitter=1.0, seq=0)
    assert isinstance(record, RecordAttempt)
    assert record.note == "retry_after ignored"
