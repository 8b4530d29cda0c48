"""Errors inside and outside steps: retried, final, delayed, caught (protocol sections 3 and 7)."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runr_workflows import (
    AsyncStep,
    Context,
    InvokeError,
    NonRetriableError,
    RetryAfterError,
    Step,
    StepError,
    StepInterrupt,
    Workflows,
)
from sdk.python.tests.engine import KEY, NOW, FakeEngine


def raising(error: BaseException) -> Callable[[], Any]:
    """A function that raises `error`."""

    def body() -> Any:
        raise error

    return body


class DeclinedError(Exception):
    """An error with arguments of its own."""

    def __init__(self, code: int, *, secret: object) -> None:
        super().__init__(f"declined with {code}")
        self.secret = secret


def test_a_failing_step_is_tried_four_times_then_caught_and_compensated(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> Any:
        try:
            return step.run("charge", raising(DeclinedError(7, secret=object())))
        except StepError as error:
            return [error.name, error.message, error.step_id, "declined with 7" in (error.stack or "")]

    run = engine.run("w")

    assert [op["op"] for op in run.ops] == ["step_failed"] * 4 + ["run_completed"]
    assert "non_retriable" not in run.ops[0]
    assert set(run.ops[0]["error"]) == {"name", "message", "stack"}
    assert run.output == ["DeclinedError", "declined with 7", "charge", True]


def test_the_stack_shows_user_code_only(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("blocking")
    def sync_workflow(ctx: Context, step: Step) -> None:
        step.run("a", raising(ValueError("x")))

    @wf.workflow("async")
    async def async_workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", raising(ValueError("x")))

    for name in ("blocking", "async"):
        lines = engine.execute(name)["error"]["stack"].splitlines()
        assert [line for line in lines if line.strip().startswith("File")] == [lines[1]]
        assert "test_errors.py" in lines[1]


def test_an_uncaught_step_error_ends_the_run_with_the_original_error(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("charge", raising(ValueError("card declined")))

    run = engine.run("w")

    assert run.ops[-1]["op"] == "run_failed"
    assert run.ops[-1]["non_retriable"] is True
    assert run.error == run.steps["charge"]["error"]


def test_an_error_outside_steps_is_retried_and_keeps_its_name(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        step.run("a", lambda: 1)
        return 1 // 0

    run = engine.run("w")

    assert [op["op"] for op in run.ops] == ["step_completed"] + ["run_failed"] * 4
    assert run.error is not None
    assert run.error["name"] == "ZeroDivisionError"


class CardError(NonRetriableError):
    """A non-retriable error of the user's own."""


@pytest.mark.parametrize("inside", [True, False])
def test_non_retriable_errors_fail_at_once(wf: Workflows, engine: FakeEngine, inside: bool) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        if inside:
            step.run("a", raising(CardError("no")))
        raise CardError("no")

    op = engine.execute("w")

    assert op["op"] == ("step_failed" if inside else "run_failed")
    assert op["non_retriable"] is True
    assert op["error"]["name"] == "CardError"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("30s", "30s"),
        (90, 90),
        (0.5, 0.5),
        (timedelta(minutes=2), "120000ms"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1), "2026-01-01T00:00:00Z"),  # noqa: DTZ001  # a naive time is UTC
        ("2026-01-01T00:00:00+03:00", "2026-01-01T00:00:00+03:00"),
        (float("nan"), "nan"),
        ("soon", "soon"),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_retry_after_says_when(wf: Workflows, engine: FakeEngine, inside: bool, given: Any, sent: object) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        error = RetryAfterError("slow down", given)
        if inside:
            step.run("a", raising(error))
        raise error

    op = engine.execute("w")

    assert op["op"] == ("step_failed" if inside else "run_failed")
    assert op["retry_after"] == sent
    assert op["error"]["message"] == "slow down"
    assert "non_retriable" not in op


def test_a_failed_invoke_raises_invoke_error_that_can_be_caught(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            step.invoke("child", "sub", timeout="1m")
        except InvokeError as error:
            return f"{error.name} {error.message}"
        return "no error"

    error = {"name": "InvokeTimeout", "message": "the child took longer than 1m"}
    op = engine.execute("w", {"child": {"status": "failed", "error": error}})

    assert op["output"] == "InvokeTimeout the child took longer than 1m"


def test_an_error_of_the_engine_may_be_a_plain_string(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[object]:
        try:
            step.run("a", lambda: None)
        except StepError as error:
            return [error.name, error.message, error.stack]
        return []

    assert engine.execute("w", {"a": {"status": "failed", "error": "boom"}})["output"] == ["Error", "boom", None]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_body_that_exits_fails_its_step_and_not_the_process(
    wf: Workflows, engine: FakeEngine, is_async: bool
) -> None:
    @wf.workflow("blocking")
    def sync_workflow(ctx: Context, step: Step) -> None:
        step.run("a", raising(SystemExit(3)))

    @wf.workflow("async")
    async def async_workflow(ctx: Context, step: AsyncStep) -> None:
        async def body() -> None:
            raise SystemExit(3)

        await step.run("a", body)

    op = engine.execute("async" if is_async else "blocking")

    assert (op["op"], op["error"]["name"]) == ("step_failed", "SystemExit")
    assert engine.execute("async")["op"] == "step_failed", "the loop goes on"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_workflow_that_exits_fails_its_run(wf: Workflows, engine: FakeEngine, is_async: bool) -> None:
    @wf.workflow("blocking")
    def sync_workflow(ctx: Context, step: Step) -> None:
        raise SystemExit(3)

    @wf.workflow("async")
    async def async_workflow(ctx: Context, step: AsyncStep) -> None:
        raise SystemExit(3)

    op = engine.execute("async" if is_async else "blocking")

    assert (op["op"], op["error"]["name"]) == ("run_failed", "SystemExit")


def test_ctrl_c_stops_the_process_and_no_op_is_answered(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("a", raising(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        engine.execute("w")


@pytest.mark.parametrize("error", [StopIteration("x"), GeneratorExit(), asyncio.CancelledError(), OSError()])
@pytest.mark.parametrize("name", ["blocking", "thread", "async"])
def test_errors_that_python_treats_specially_are_failures_like_any_other(
    wf: Workflows, engine: FakeEngine, name: str, error: BaseException
) -> None:
    @wf.workflow("blocking")
    def sync_workflow(ctx: Context, step: Step) -> None:
        step.run("a", raising(error))

    @wf.workflow("thread")
    async def thread_workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", raising(error))

    @wf.workflow("async")
    async def async_workflow(ctx: Context, step: AsyncStep) -> None:
        async def body() -> None:
            raise error

        await step.run("a", body)

    op = engine.execute(name)

    assert op["op"] in ("step_failed", "run_failed")
    assert op["error"]["name"] in (type(error).__name__, "RuntimeError")


def test_a_task_group_is_as_final_as_its_members(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(step.run("a", lambda: None))

    op = engine.execute("w", {"a": {"status": "failed", "error": {"name": "CardError", "message": "declined"}}})

    assert op == {"op": "run_failed", "error": {"name": "CardError", "message": "declined"}, "non_retriable": True}


def test_an_error_that_cannot_be_shown_is_still_reported(wf: Workflows, engine: FakeEngine) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("mute", raising(MuteError()))

    op = engine.execute("w")

    assert op["error"]["name"] == "MuteError"
    assert op["error"]["message"] == "(the error's text cannot be shown)"


def test_long_and_odd_messages_fit_the_wire(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("a", raising(ValueError("\ud800\0" + "x" * 1_000_000)))

    error = engine.execute("w")["error"]

    assert error["message"].startswith("\ud800\0xxx")
    assert len(error["message"]) <= 8 * 1024
    assert len(error["stack"]) <= 32 * 1024


def test_a_step_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(InvokeError("E", "m", step_id="a", stack="s")))

    assert (type(error), error.name, error.message, error.step_id, error.stack) == (InvokeError, "E", "m", "a", "s")


def test_the_interrupt_is_no_exception_and_says_what_it_is() -> None:
    assert not issubclass(StepInterrupt, Exception)
    assert StepInterrupt.__name__.endswith("Interrupt")


def test_runs_do_not_share_anything() -> None:
    wf = Workflows(signing_key=KEY, clock=lambda: NOW)
    calls: list[int] = []

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("a", raising(NonRetriableError(str(len(calls)))))

    first, second = (FakeEngine(wf.handle_request).run("w") for _ in range(2))

    assert first.kinds == second.kinds == [("step_failed", "a")]
