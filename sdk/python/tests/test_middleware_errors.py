"""Middleware that raises, and middleware that is none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from runr_workflows import (
    AsyncStep,
    Context,
    DefinitionError,
    Middleware,
    NonRetriableError,
    Step,
    StepError,
    Workflows,
)
from runr_workflows.endpoint import Endpoint
from runr_workflows.middleware import Where
from runr_workflows.replay import Replay
from runr_workflows.testing import TestEngine
from sdk.python.tests.hooked_app import WrapsAsync, app, close_all, define, double


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes every registry."""
    yield
    close_all()


class Raises(Middleware):
    """Raises in one hook."""

    def __init__(self, hook: str, error: BaseException, where: str | None = None) -> None:
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


class StoppedExporter(Middleware):
    """Awaits what somebody has cancelled: an exporter or a pool that is being closed."""

    def __init__(self, hook: str) -> None:
        async def hooked(*_: Any) -> None:
            task = asyncio.ensure_future(asyncio.Event().wait())
            await asyncio.sleep(0)
            task.cancel()
            await task

        setattr(self, hook, hooked)


class Exits(Middleware):
    """Ends the process, so to say."""

    def __init__(self, hook: str) -> None:
        async def hooked(*_: Any) -> None:
            await asyncio.sleep(0)
            raise SystemExit(1)

        setattr(self, hook, hooked)


@pytest.mark.parametrize("has_been_cancelled", [False, True])
@pytest.mark.parametrize("kind", [StoppedExporter, Exits])
@pytest.mark.parametrize("hook", ["step_ends", "invocation_ends"])
def test_so_is_what_is_no_exception(
    hook: str, kind: type[Any], has_been_cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wf = app(kind(hook))
    paid: list[int] = []

    @wf.workflow("one", retries=2)
    async def one(ctx: Context, step: AsyncStep) -> int:
        task = asyncio.current_task()
        if has_been_cancelled and task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        await step.run("pay", paid.append, 1)
        return 5

    with caplog.at_level(logging.WARNING, "runr_workflows"):
        run = TestEngine(wf).run("one")
    assert (len(paid), run.status, run.output) == (1, "completed", 5), run.error
    assert "the result stands" in caplog.text


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError()])
@pytest.mark.parametrize("is_async", [False, True])
def test_so_it_is_where_nothing_is_awaited(error: BaseException, is_async: bool) -> None:
    wf = app(Raises("step_ends", error), Raises("invocation_ends", error))
    define(wf, is_async)
    run = TestEngine(wf).run("told")
    assert (run.output, [len(step.attempts) for step in run.steps.values()]) == (5, [1, 0, 1])


@pytest.mark.parametrize("kind", [StoppedExporter, Exits])
@pytest.mark.parametrize("hook", ["invocation_starts", "step_starts", "encode"])
def test_before_the_ends_it_fails_by_name(hook: str, kind: type[Any]) -> None:
    wf = app(kind(hook))

    @wf.workflow("one", retries=0)
    async def one(ctx: Context, step: AsyncStep) -> int:
        return await step.run("double", double, 1)

    run = TestEngine(wf).run("one")
    assert run.error is not None
    assert run.error["name"] == "MiddlewareError"
    assert f"{kind.__name__}.__init__.<locals>.hooked raised" in run.error["message"]


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
