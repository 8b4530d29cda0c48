"""Middleware against the real engine: what it encodes is all that the engine has, over HTTP and the worker stream."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from typing import Any

import pytest
from runr_workflows import (
    AsyncStep,
    Context,
    InvocationOutcome,
    Middleware,
    NonRetriableError,
    RetryAfterError,
    Step,
    StepError,
    StepInfo,
    StepOutcome,
    Workflows,
)
from runr_workflows.testing import replay

from tests.support.rest import Rest, steps_of
from tests.support.workflow_app import Bodies, serving

SECRET = "attack at dawn"


class Sealed(Middleware):
    """Values that cannot be read by looking at them, and are told when they were changed."""

    def encode(self, value: Any, where: str) -> Any:
        text = json.dumps([where, value]).encode()
        return {"sealed": base64.b85encode(zlib.compress(text)).decode(), "sum": zlib.crc32(text)}

    def decode(self, value: Any, where: str) -> Any:
        if not isinstance(value, dict) or "sealed" not in value:
            return value
        text = zlib.decompress(base64.b85decode(value["sealed"]))
        assert zlib.crc32(text) == value["sum"]
        place, inner = json.loads(text)
        assert place == where
        return inner


class SealedAsync(Middleware):
    """The same, encoded by a coroutine."""

    async def encode(self, value: Any, where: str) -> Any:
        return Sealed().encode(value, where)

    def decode(self, value: Any, where: str) -> Any:
        return Sealed().decode(value, where)


class Counts:
    """Counts what happens."""

    def __init__(self) -> None:
        self.steps: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[str] = Counter()

    def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        self.steps[step.id, outcome.status] += 1

    def invocation_ends(self, ctx: Context, outcome: InvocationOutcome) -> None:
        self.ends[outcome.status] += 1


def echo(value: str) -> str:
    return value


def broken(value: str) -> None:
    raise NonRetriableError("no")


def sync(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("parent", checkpoint={"max_steps": 3})
    def parent(ctx: Context, step: Step) -> Any:
        said = [step.run("echo", echo, ctx.event["data"]["text"]) for _ in range(5)]
        try:
            step.run("broken", broken, said[0])
        except StepError as error:
            said.append(error.name)
        step.send_event("tell", {"name": "told", "data": {"text": said[0]}})
        heard = step.wait_for_event("heard", "told.back", timeout="60s", lookback="run")
        assert heard is not None
        return [said, heard["data"]["text"], step.invoke("child", "child", data={"text": said[1]})]

    @wf.workflow("child")
    def child(ctx: Context, step: Step) -> str:
        return str(step.run("reverse", echo, ctx.event["data"]["text"][::-1]))

    @wf.workflow("told", triggers=[{"event": "told"}])
    def told(ctx: Context, step: Step) -> None:
        step.send_event("back", {"name": "told.back", "data": {"text": ctx.event["data"]["text"].upper()}})


def asynchronous(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("parent", checkpoint={"max_steps": 3})
    async def parent(ctx: Context, step: AsyncStep) -> Any:
        said: list[Any] = [await step.run("echo", echo, ctx.event["data"]["text"]) for _ in range(5)]
        try:
            await step.run("broken", broken, said[0])
        except StepError as error:
            said.append(error.name)
        await step.send_event("tell", {"name": "told", "data": {"text": said[0]}})
        heard = await step.wait_for_event("heard", "told.back", timeout="60s", lookback="run")
        assert heard is not None
        return [said, heard["data"]["text"], await step.invoke("child", "child", data={"text": said[1]})]

    @wf.workflow("child")
    async def child(ctx: Context, step: AsyncStep) -> str:
        return str(await step.run("reverse", echo, ctx.event["data"]["text"][::-1]))

    @wf.workflow("told", triggers=[{"event": "told"}])
    async def told(ctx: Context, step: AsyncStep) -> None:
        await step.send_event("back", {"name": "told.back", "data": {"text": ctx.event["data"]["text"].upper()}})


@pytest.mark.parametrize(
    ("register", "sealed"), [(sync, Sealed()), (asynchronous, Sealed()), (asynchronous, SealedAsync())]
)
async def test_the_engine_has_nothing_but_what_is_encoded(rest: Rest, register: Any, sealed: Any) -> None:
    counts = Counts()
    served: list[Workflows] = []

    def define(wf: Workflows, bodies: Bodies) -> None:
        register(wf, bodies)
        served.append(wf)

    async with serving(rest, define, middleware=[counts, sealed]):
        # The start comes from outside, so it is encoded there.
        run = await rest.start("parent", Sealed().encode({"text": SECRET}, "event"))
        found = await rest.end(run)
        assert found["status"] == "completed", found
        assert Sealed().decode(found["output"], "run") == [
            [SECRET] * 5 + ["NonRetriableError"],
            SECRET.upper(),
            SECRET[::-1],
        ]
        (child,) = found["children"]
        (told,) = await rest.runs("?workflow=told")
        events = await rest.ok("GET", "/events?name=told")
        stored = [found, *[await rest.run(each["id"]) for each in (child, told)]]
        stored += [await rest.ok("GET", f"/events/{each['id']}") for each in events["data"]]
        assert counts.ends["completed"] == 3
        assert replay(served[0], found).next is None
    assert len(stored) == 5
    text = json.dumps(stored).lower()
    assert SECRET not in text
    assert SECRET[::-1] not in text
    assert text.count('"sealed"') > 15
    assert set(steps_of(found).values()) == {"completed", "failed"}
    echoes = {(f"echo:{n}" if n else "echo", "completed"): 1 for n in range(5)}
    assert counts.steps == {**echoes, ("broken", "failed"): 1, ("reverse", "completed"): 1}


class Fails(Middleware):
    """Raises as often as it is told, by the name of the hook."""

    def __init__(self) -> None:
        self.left: Counter[str] = Counter()

    def step_starts(self, step: StepInfo) -> None:
        self._fail("step_starts")

    def encode(self, value: Any, where: str) -> Any:
        self._fail(f"encode {where}")
        return value

    def decode(self, value: Any, where: str) -> Any:
        self._fail(f"decode {where}")
        return value

    def _fail(self, hook: str) -> None:
        if self.left[hook]:
            self.left[hook] -= 1
            raise RetryAfterError(hook, "20ms")


def failing(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("in-thread", retries=1)
    def sync(ctx: Context, step: Step) -> Any:
        said = step.run("echo", echo, "a")
        step.send_event("tell", {"name": "told"})
        return said + str(step.run("echo", echo, "b"))

    @wf.workflow("on-loop", retries=1)
    async def asynchronous(ctx: Context, step: AsyncStep) -> Any:
        said = await step.run("echo", echo, "a")
        await step.send_event("tell", {"name": "told"})
        return said + str(await step.run("echo", echo, "b"))


@pytest.mark.parametrize("workflow", ["in-thread", "on-loop"])
@pytest.mark.parametrize(
    "hook", ["step_starts", "encode step", "encode event", "encode run", "decode event", "decode step"]
)
async def test_what_hooks_raise_fails_an_attempt(rest: Rest, workflow: str, hook: str) -> None:
    fails = Fails()
    is_of_step = hook in ("step_starts", "encode step")
    async with serving(rest, failing, middleware=[fails]):
        # The arguments of a step are encoded too, but for the timeline alone.
        fails.left[hook] = 2 if hook == "encode step" else 1
        run = await rest.end(await rest.start(workflow))
        assert (run["status"], run["output"]) == ("completed", "ab")
        (step,) = [each for each in run["steps"] if each["id"] == "echo"]
        failed = [each for each in (step if is_of_step else run)["attempts"] if each["error"]]
        assert [(each["error"]["name"], each["error"]["message"]) for each in failed] == [("RetryAfterError", hook)]
        fails.left[hook] = 100
        run = await rest.end(await rest.start(workflow))
        assert (run["status"], run["error"]["message"]) == ("failed", hook)
