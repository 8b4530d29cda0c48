"""User code that catches everything cannot swallow the unwinding (protocol section 7)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, Workflows
from sdk.python.tests.engine import FakeEngine

later: list[str] = []


def g() -> str:
    later.append("g")
    return "g"


def except_exception(ctx: Context, step: Step) -> Any:
    try:
        return step.run("a", lambda: 1)
    except Exception:
        return step.run("b", g)


def bare_except(ctx: Context, step: Step) -> Any:
    try:
        return step.run("a", lambda: 1)
    except:  # noqa: E722  # this is what users write
        return step.run("b", g)


def except_base_exception_and_return(ctx: Context, step: Step) -> Any:
    try:
        return step.run("a", lambda: 1)
    except BaseException:
        return "swallowed"


def except_base_exception_and_raise(ctx: Context, step: Step) -> Any:
    try:
        return step.run("a", lambda: 1)
    except BaseException:
        raise ValueError("something else") from None


def finally_return(ctx: Context, step: Step) -> Any:
    try:
        return step.run("a", lambda: 1)
    finally:
        return 1  # noqa: B012, SIM107  # this is what users write


def finally_step(ctx: Context, step: Step) -> Any:
    try:
        return step.run("a", lambda: 1)
    finally:
        step.run("b", g)


def retry_loop(ctx: Context, step: Step) -> Any:
    for _ in range(3):
        try:
            return step.run("a", lambda: 1)
        except BaseException:
            step.sleep("pause", 1)
    return "gave up"


async def async_bare_except(ctx: Context, step: AsyncStep) -> Any:
    try:
        return await step.run("a", lambda: 1)
    except:  # noqa: E722  # this is what users write
        return await step.run("b", g)


async def async_finally_return(ctx: Context, step: AsyncStep) -> Any:
    try:
        return await step.run("a", lambda: 1)
    finally:
        return 1  # noqa: B012, SIM107  # this is what users write


async def async_retry_loop(ctx: Context, step: AsyncStep) -> Any:
    for _ in range(3):
        try:
            return await step.run("a", lambda: 1)
        except BaseException:
            await step.sleep("pause", 1)
    return "gave up"


async def async_raises_while_unwinding(ctx: Context, step: AsyncStep) -> Any:
    try:
        return await step.run("a", lambda: 1)
    except asyncio.CancelledError:
        raise ValueError("something else") from None


@pytest.mark.parametrize(
    "function",
    [
        except_exception,
        bare_except,
        except_base_exception_and_return,
        except_base_exception_and_raise,
        finally_return,
        finally_step,
        retry_loop,
        async_bare_except,
        async_finally_return,
        async_retry_loop,
        async_raises_while_unwinding,
    ],
)
def test_the_first_op_is_answered(wf: Workflows, engine: FakeEngine, function: Callable[..., Any]) -> None:
    later.clear()
    wf.workflow("w")(function)

    op = engine.execute("w")

    assert (op["op"], op["id"], op["output"]) == ("step_completed", "a", 1)
    assert later == []


def test_a_step_that_is_reported_cannot_be_swallowed_either(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            step.sleep("nap", "1h")
        except BaseException:
            step.run("b", g)
        return "not slept"

    assert engine.execute("w")["op"] == "sleep"


def test_a_nested_step_fails_the_run_at_once_whatever_the_body_catches(wf: Workflows, engine: FakeEngine) -> None:
    later.clear()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        def outer() -> str:
            try:
                return step.run("inner", g)
            except BaseException:
                return "swallowed"

        try:
            return step.run("outer", outer)
        except BaseException:
            return "swallowed"

    run = engine.run("w")

    assert [op["op"] for op in run.ops] == ["run_failed"]
    assert run.ops[0]["non_retriable"] is True
    assert run.error is not None
    assert run.error["name"] == "NestedStepError"
    assert "'inner'" in run.error["message"]
    assert "'outer'" in run.error["message"]
    assert later == []


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_nested_step_in_an_async_workflow(wf: Workflows, engine: FakeEngine, in_thread: bool) -> None:
    later.clear()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        async def outer() -> Any:
            try:
                return await asyncio.gather(step.run("inner", g))
            except Exception:
                return "swallowed"

        def outer_in_thread() -> Any:
            return step.run("inner", g)

        if in_thread:
            return await step.run("outer", outer_in_thread)
        return await step.run("outer", outer)

    op = engine.execute("w")

    assert op["op"] == "run_failed"
    assert op["non_retriable"] is True
    assert op["error"]["name"] == "NestedStepError"
    assert later == []


def test_a_nested_step_from_a_thread_of_the_body_is_found_too(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        def outer() -> None:
            def in_thread() -> None:
                try:
                    step.run("inner", g)
                except BaseException:
                    later.append("unwound")

            thread = threading.Thread(target=in_thread)
            thread.start()
            thread.join()

        step.run("outer", outer)

    later.clear()
    op = engine.execute("w")

    assert later == ["unwound"]
    assert (op["op"], op["error"]["name"]) == ("run_failed", "NestedStepError")
