"""Middleware: hooks around invocations and steps, and values that are stored in another form."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from runr_workflows import (
    AsyncStep,
    Context,
    DefinitionError,
    InvocationOutcome,
    Middleware,
    NonRetriableError,
    Step,
    StepError,
    StepInfo,
    StepOutcome,
    Workflows,
)
from runr_workflows.endpoint import Endpoint
from runr_workflows.middleware import Where
from runr_workflows.replay import Replay
from runr_workflows.testing import TestEngine, every_crash, replay

Told = list[Any]


class Tells:
    """Tells what it is called with. Not derived from Middleware: any object will do."""

    def __init__(self, told: Told, name: str) -> None:
        self._told = told
        self._name = name

    def invocation_starts(self, ctx: Context) -> None:
        self._told.append((self._name, "invocation", ctx.workflow))

    def invocation_ends(self, ctx: Context, outcome: InvocationOutcome) -> None:
        self._told.append((self._name, outcome.status, outcome.error and dict(outcome.error)))

    def step_starts(self, step: StepInfo) -> None:
        self._told.append((self._name, step.id, step.attempt, tuple(step.args), dict(step.kwargs)))

    def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        self._told.append((self._name, step.id, outcome.status, outcome.output, repr(outcome.error)))


class TellsAsync:
    """The same, taking its time."""

    def __init__(self, told: Told, name: str) -> None:
        self._inner = Tells(told, name)

    async def invocation_starts(self, ctx: Context) -> None:
        await asyncio.sleep(0)
        self._inner.invocation_starts(ctx)

    async def invocation_ends(self, ctx: Context, outcome: InvocationOutcome) -> None:
        await asyncio.sleep(0)
        self._inner.invocation_ends(ctx, outcome)

    async def step_starts(self, step: StepInfo) -> None:
        await asyncio.sleep(0)
        self._inner.step_starts(step)

    async def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        await asyncio.sleep(0)
        self._inner.step_ends(step, outcome)


class Wraps(Middleware):
    """Stores values in a wrapper with its name, and where they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def encode(self, value: Any, where: Where) -> Any:
        return {self.name: value, "where": where}

    def decode(self, value: Any, where: Where) -> Any:
        if not isinstance(value, dict) or self.name not in value:
            return value
        assert value["where"] == where
        return value[self.name]


class WrapsAsync(Middleware):
    """The same, taking its time: the longer, the earlier it is called."""

    def __init__(self, name: str) -> None:
        self._inner = Wraps(name)
        self._passes = 20

    async def encode(self, value: Any, where: Where) -> Any:
        await self._take_time()
        return self._inner.encode(value, where)

    def decode(self, value: Any, where: Where) -> Any:
        return self._inner.decode(value, where)

    async def _take_time(self) -> None:
        self._passes = max(self._passes - 3, 0)
        for _ in range(self._passes):
            await asyncio.sleep(0)


MADE: list[Workflows] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


def app(*middleware: object, **options: Any) -> Workflows:
    MADE.append(Workflows(middleware=middleware, **options))
    return MADE[-1]


def double(value: int, plus: int = 0) -> int:
    return 2 * value + plus


def failing() -> None:
    raise ValueError("no")


def define(wf: Workflows, is_async: bool) -> None:
    """A step, a sleep, a step that fails for good and is caught."""

    def told(ctx: Context, step: Step) -> int:
        first = step.run("double", double, 1, plus=3)
        step.sleep("nap", "1d")
        try:
            step.options(retries=0).run("failing", failing)
        except StepError:
            return first
        raise AssertionError("it fails")

    async def told_async(ctx: Context, step: AsyncStep) -> int:
        first = await step.run("double", double, 1, plus=3)
        await step.sleep("nap", "1d")
        try:
            await step.options(retries=0).run("failing", failing)
        except StepError:
            return first
        raise AssertionError("it fails")

    wf.workflow("told")(told_async if is_async else told)


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


class Raises(Middleware):
    """Raises in one hook."""

    def __init__(self, hook: str, error: Exception, where: str | None = None) -> None:
        def hooked(*args: Any) -> Any:
            if where is None or args[-1] == where:
                raise error
            return args[0]

        setattr(self, hook, hooked)


@pytest.mark.parametrize(
    ("hook", "where", "status", "step"),
    [
        ("invocation_starts", None, "failed", None),
        ("decode", "event", "failed", None),
        ("encode", "run", "failed", "completed"),
        ("decode", "step", "failed", "completed"),
        ("step_starts", None, "failed", "failed"),
        ("encode", "step", "failed", "failed"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_hook_raises_fails_the_attempt_by_name(
    hook: str, where: str | None, status: str, step: str | None, is_async: bool
) -> None:
    wf = app(Raises(hook, OSError("no key"), where))

    async def one_async(ctx: Context, step: AsyncStep) -> int:
        return await step.run("double", double, 1)

    def one(ctx: Context, step: Step) -> int:
        try:
            return step.run("double", double, 1)
        except (StepError, NonRetriableError):
            raise
        except Exception as error:
            raise AssertionError("code cannot catch what middleware raises") from error

    wf.workflow("one", retries=1)(one_async if is_async else one)
    run = TestEngine(wf).run("one")
    assert run.status == status
    assert run.error is not None
    assert run.error["name"] == "MiddlewareError"
    assert run.error["message"].endswith("raised OSError: no key")
    assert (run.steps["double"].status if "double" in run.steps else None) == step
    attempts = run.steps["double"].attempts if step == "failed" else run.attempts
    assert len(attempts) == 2


def test_a_hook_may_say_that_nothing_will_help() -> None:
    wf = app(Raises("step_starts", NonRetriableError("forbidden")))
    define(wf, False)
    run = TestEngine(wf).run("told")
    assert (run.status, run.error and run.error["message"], len(run.timeline)) == ("failed", "forbidden", 2)


def test_what_the_ends_raise_is_logged_and_the_result_stands(caplog: pytest.LogCaptureFixture) -> None:
    wf = app(Raises("step_ends", OSError("away")), Raises("invocation_ends", OSError("away")))
    define(wf, False)
    with caplog.at_level(logging.ERROR, "runr_workflows"):
        assert TestEngine(wf).run("told").output == 5
    assert len([record for record in caplog.records if "the result stands" in record.message]) == 2 + 4


def test_arguments_that_cannot_be_encoded_are_left_out() -> None:
    class Json(Middleware):
        def encode(self, value: Any, where: Where) -> Any:
            return json.dumps(value)

        def decode(self, value: Any, where: Where) -> Any:
            return json.loads(value) if isinstance(value, str) else value

    wf = app(Json())

    @wf.workflow("one")
    def one(ctx: Context, step: Step) -> int:
        return step.run("double", lambda ctx, n: 2 * n, ctx, 3) + step.run("shown", double, 3)

    run = TestEngine(wf).run("one")
    assert (run.output, run.steps["double"].input, run.steps["shown"].input) == ("12", None, "[3]")
    hidden = app(Json(), capture_input=False)
    define(hidden, False)
    assert TestEngine(hidden).run("told").steps["double"].input is None


def test_data_of_an_event_must_stay_an_object() -> None:
    class Text(Middleware):
        def encode(self, value: Any, where: Where) -> Any:
            return "text" if where == "event" else value

    wf = app(Text())

    @wf.workflow("tell")
    def tell(ctx: Context, step: Step) -> None:
        step.send_event("tell", {"name": "told"})

    run = TestEngine(wf).run("tell")
    assert (run.status, run.error and run.error["message"]) == (
        "failed",
        "middleware has encoded data of an event as str, no object",
    )


class DecodesLate(Middleware):
    async def decode(self, value: Any, where: Where) -> Any:
        return value


def test_misuse_is_told_at_once() -> None:
    with pytest.raises(TypeError, match=r"DecodesLate\.decode is async, which decode cannot be for workflows"):
        Workflows(middleware=[DecodesLate()])
    with pytest.raises(TypeError, match="is no middleware: it has none of invocation_starts"):
        Workflows(middleware=[object()])
    with pytest.raises(DefinitionError, match=r"WrapsAsync\.encode is async, and so must be the workflow"):
        define(app(WrapsAsync("in")), False)


def test_without_middleware_nothing_is_in_the_way() -> None:
    wf = app()
    assert wf.endpoint(Endpoint)._plain is Replay
    define(wf, False)
    assert wf._workflows["told"].fn.__qualname__.endswith("told")
    assert not hasattr(wf._workflows["told"].fn, "__wrapped__")
