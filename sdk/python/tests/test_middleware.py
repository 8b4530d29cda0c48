"""Middleware: hooks around invocations and steps, and values that are stored in another form."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from runr_workflows import (
    AsyncStep,
    Context,
    NonRetriableError,
    Step,
    Workflows,
)
from runr_workflows.testing import TestEngine, every_crash, replay
from sdk.python.tests.hooked_app import Tells, TellsAsync, Told, Wraps, WrapsAsync, app, close_all, define, double


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes every registry."""
    yield
    close_all()


@pytest.mark.parametrize("kinds", [(Tells, Tells, False), (Tells, Tells, True), (Tells, TellsAsync, True)])
def test_hooks_are_called_in_order_and_their_ends_in_reverse(kinds: Sequence[Any]) -> None:
    told: Told = []
    wf = app(kinds[0](told, "a"), kinds[1](told, "b"))
    define(wf, kinds[2])
    assert TestEngine(wf).run("told").output == 5

    def both(*what: Any, ends: bool = False) -> Told:
        return [(name, *what) for name in ("ba" if ends else "ab")]

    error = {"name": "ValueError", "message": "no"}
    starts = both("invocation", "told")
    goes_on = both("continues", None, ends=True)
    assert told == [
        *starts,
        *both("double", 0, (1,), {"plus": 3}),
        *both("double", "completed", 5, "None", ends=True),
        *goes_on,
        *starts,
        *goes_on,
        *starts,
        *both("failing", 0, (), {}),
        *both("failing", "failed", None, "ValueError('no')", ends=True),
        *both("continues", error, ends=True),
        *starts,
        *both("completed", None, ends=True),
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_end_of_the_function_is_told(is_async: bool) -> None:
    told: Told = []
    wf = app(Tells(told, "a"))

    async def broken_async(ctx: Context, step: AsyncStep) -> None:
        raise NonRetriableError("over")

    async def nested_async(ctx: Context, step: AsyncStep) -> None:
        async def body() -> None:
            await step.run("inner", double, 1)

        await step.run("outer", body)

    def broken(ctx: Context, step: Step) -> None:
        raise NonRetriableError("over")

    def nested(ctx: Context, step: Step) -> None:
        step.run("outer", lambda: step.run("inner", double, 1))

    def no_json(ctx: Context, step: Step) -> object:
        return object()

    async def no_json_async(ctx: Context, step: AsyncStep) -> object:
        return object()

    wf.workflow("broken")(broken_async if is_async else broken)
    wf.workflow("nested")(nested_async if is_async else nested)
    wf.workflow("no-json")(no_json_async if is_async else no_json)
    for name, error in (
        ("broken", "NonRetriableError"),
        ("nested", "NestedStepError"),
        ("no-json", "SerializationError"),
    ):
        told.clear()
        assert TestEngine(wf).run(name).status == "failed"
        _, status, described = told[-1]
        assert (status, described["name"]) == ("failed", error)


def define_values(wf: Workflows, checkpoint: Any = None) -> None:
    @wf.workflow("values", triggers=[{"event": "asked"}], checkpoint=checkpoint)
    async def values(ctx: Context, step: AsyncStep) -> Any:
        one = await step.run("double", double, ctx.event["data"]["n"])
        many = await asyncio.gather(*[step.run("add", double, number) for number in range(3)])
        await step.send_event("tell", [{"name": "told", "data": {"one": one}}, {"name": "told"}])
        heard = await step.wait_for_event("heard", "heard")
        child = await step.invoke("child", "child", data={"n": one})
        return [one, many, heard and heard["data"], child]

    @wf.workflow("child")
    async def child(ctx: Context, step: AsyncStep) -> Any:
        return ctx.event["data"]["n"] + 1

    @wf.workflow("told", triggers=[{"event": "told"}])
    async def told(ctx: Context, step: AsyncStep) -> Any:
        return ctx.event["data"]


@pytest.mark.parametrize("wraps", [Wraps, WrapsAsync])
@pytest.mark.parametrize("checkpoint", [None, {"max_steps": 10}])
def test_what_is_stored_is_encoded_in_order_and_code_sees_the_values(wraps: Any, checkpoint: Any) -> None:
    wf = app(wraps("in"), wraps("out"))
    define_values(wf, checkpoint)

    def wrapped(value: Any, where: str) -> Any:
        return {"out": {"in": value, "where": where}, "where": where}

    engine = TestEngine(wf)
    engine.send("heard", {"plain": True}, when_waiting="heard")
    run = engine.run("values", {"n": 2})
    assert run.output == wrapped([4, [0, 2, 4], {"plain": True}, 5], "run")
    steps = {step.id: step for step in run.steps.values()}
    assert [steps[id].output for id in ("double", "add", "add:1", "add:2")] == [
        wrapped(value, "step") for value in (4, 0, 2, 4)
    ]
    assert [steps[id].input for id in ("double", "add")] == [wrapped([2], "step"), wrapped([0], "step")]
    assert steps["child"].input["data"] == wrapped({"n": 4}, "event")
    assert steps["child"].output == wrapped(5, "run")
    listeners = [each for each in engine.runs if each.workflow == "told"]
    assert [each.event["data"] for each in listeners] == [wrapped({"one": 4}, "event"), wrapped({}, "event")]
    assert [each.output for each in listeners] == [wrapped({"one": 4}, "run"), wrapped({}, "run")]
    assert replay(wf, run.history).next is None


def test_a_crash_changes_nothing_either() -> None:
    wf = app(WrapsAsync("in"), Wraps("out"))
    define_values(wf, {"max_steps": 3})

    def scenario(engine: TestEngine) -> None:
        engine.send("heard", {"plain": True}, when_waiting="heard")
        engine.run("values", {"n": 2})

    assert every_crash(wf, scenario) > 10
