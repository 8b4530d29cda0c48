"""What a worker reports over its stream: the ops of HTTP, with several steps open at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.domain.cause import Answered, Reported, Unwound
from services.core.domain.effect import EndRun, Memoize, OpenWait, RecordAttempt
from services.core.domain.op import (
    BadStep,
    EventToSend,
    Invoke,
    Op,
    OpError,
    RunCompleted,
    RunFailed,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from services.core.domain.run import Limits, RunView, Status
from services.core.domain.transition import Decision, decide

NOW = 1_760_000_000_000
BOOM = OpError("Boom", "no")


def running(**fields: Any) -> RunView:
    return RunView(**{"status": Status.RUNNING, "max_attempts": 4, **fields})


def done(step_id: str, output: str = "1") -> StepCompleted:
    return StepCompleted(id=step_id, name=step_id, output=output)


def failed(step_id: str, **fields: Any) -> StepFailed:
    return StepFailed(id=step_id, name=step_id, error=BOOM, **fields)


def sleep(step_id: str) -> Sleep:
    return Sleep(id=step_id, name=step_id, for_ms=60_000)


def wait(step_id: str) -> WaitForEvent:
    return WaitForEvent(id=step_id, name=step_id, event="paid")


def child(step_id: str) -> Invoke:
    return Invoke(id=step_id, name=step_id, workflow="other", data="{}")


def reported(
    *ops: Op, executing: bool = False, repeated: tuple[str, ...] = (), state: RunView | None = None
) -> Decision:
    return decide(state or running(), Reported(ops, frozenset(repeated), executing=executing), NOW)


def opened(decision: Decision) -> list[str]:
    return [effect.id for effect in decision.effects if isinstance(effect, OpenWait)]


_OPS: list[Op] = [
    done("a"),
    failed("a"),
    failed("a", non_retriable=True),
    sleep("a"),
    Sleep(id="a", name="a", for_ms=0),
    wait("a"),
    child("a"),
    SendEvent(id="a", name="a", events=(EventToSend(name="x", data="{}"),)),
    BadStep(id="a", name="a", kind="run", error=BOOM),
    RunCompleted(output="1"),
    RunFailed(error=BOOM),
    RunFailed(error=BOOM, non_retriable=True),
]


@pytest.mark.parametrize("op", _OPS, ids=lambda op: type(op).__name__)
@given(
    steps=st.integers(0, 4),
    size=st.integers(0, 12),
    failures=st.integers(0, 3),
    repeats=st.integers(0, 2),
    tried=st.integers(0, 4),
    repeated=st.booleans(),
)
@settings(max_examples=60)
def test_the_last_op_of_an_invocation_does_what_it_does_over_http(
    op: Op, steps: int, size: int, failures: int, repeats: int, tried: int, repeated: bool
) -> None:
    state = running(
        steps=steps,
        state_bytes=size,
        function_failures=failures,
        repeats=repeats,
        step_failures={"a": tried},
        limits=Limits(max_steps=4, max_state_bytes=12),
    )
    ids = frozenset({"a"}) if repeated else frozenset()
    assert decide(state, Reported((op,), ids), NOW) == decide(state, Answered((op,), ids), NOW)


def test_what_rests_beside_an_executing_step_is_stored_and_the_run_keeps_running() -> None:
    for op in (sleep("a"), wait("a"), child("a"), failed("a")):
        decision = reported(op, executing=True)
        assert decision.status is Status.RUNNING
        assert opened(decision) == ["a"]


def test_ops_after_one_that_rests_are_applied_too() -> None:
    decision = reported(sleep("a"), done("b"), wait("c"), failed("d"), child("e"), executing=True)
    assert decision.status is Status.RUNNING
    assert opened(decision) == ["a", "c", "d", "e"]
    assert [effect.seq for effect in decision.effects if isinstance(effect, Memoize)] == [1]
    # A failed attempt takes no place in the history before its step has a result.
    assert decision.steps == 4


@pytest.mark.parametrize(
    ("letters", "status"),
    [
        ("", Status.RUNNING),
        ("b", Status.DELAYED),
        ("e", Status.WAITING),
        ("c", Status.WAITING),
        ("bc", Status.WAITING),
        ("s", Status.SLEEPING),
        ("secb", Status.SLEEPING),
    ],
)
def test_a_run_rests_in_the_status_of_what_is_open(letters: str, status: Status) -> None:
    state = running(open_steps={f"{place}": letter for place, letter in enumerate(letters)}, steps=4, repeats=1)
    decision = decide(state, Unwound(), NOW)
    assert (decision.status, decision.effects, decision.steps) == (status, (), 4)
    if letters:
        assert reported(done("z"), state=state).status is status


def test_a_step_that_is_open_is_not_opened_twice() -> None:
    state = running(open_steps={"a": "s", "b": "e", "c": "c"}, steps=3)
    decision = reported(sleep("a"), wait("b"), child("c"), state=state)
    assert (decision.effects, decision.status, decision.steps) == ((), Status.SLEEPING, 3)
    for op, rests in ((sleep("a"), Status.SLEEPING), (wait("b"), Status.WAITING), (child("c"), Status.WAITING)):
        over_http = decide(state, Answered((op,)), NOW)
        assert (over_http.effects, over_http.status, over_http.steps) == ((), rests, 3)


def test_a_step_that_fails_for_good_beside_others_is_memoized_and_ends_nothing() -> None:
    decision = reported(failed("a", non_retriable=True), done("b"), executing=True)
    assert decision.status is Status.RUNNING
    assert [type(effect) for effect in decision.effects] == [RecordAttempt, Memoize, Memoize]
    assert decision.steps == 2


def test_the_end_of_the_run_ends_it_whatever_is_executing() -> None:
    decision = reported(done("a"), RunCompleted(output="7"), executing=True, state=running(open_steps={"x": "s"}))
    assert decision.status is Status.COMPLETED
    assert decision.effects[-1] == EndRun(output="7")


def test_a_failure_after_a_result_starts_the_count_of_the_function_anew() -> None:
    state = running(function_failures=3)
    assert reported(RunFailed(error=BOOM), state=state).status is Status.FAILED
    decision = reported(done("a"), RunFailed(error=BOOM), state=state)
    assert (decision.status, decision.function_failures) == (Status.DELAYED, 1)


def test_only_repeated_ops_are_a_strike_and_one_new_op_beside_them_is_none() -> None:
    state = running(repeats=2)
    assert reported(done("a"), repeated=("a",), state=state).status is Status.FAILED
    decision = reported(done("a"), done("b"), repeated=("a",), state=state)
    assert (decision.status, decision.repeats) == (Status.RUNNING, 0)


def test_limits_hold_for_the_op_that_passes_them() -> None:
    state = running(limits=Limits(max_steps=2, max_state_bytes=3))
    over = reported(done("a"), done("b"), done("c"), executing=True, state=state)
    assert over.status is Status.FAILED
    assert sum(isinstance(effect, Memoize) for effect in over.effects) == 2
    assert reported(done("a", '"xx"'), executing=True, state=state).status is Status.FAILED
