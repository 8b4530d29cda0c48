"""Hooks that return what is to be awaited, and are not `async def`: awaited, or refused where nobody can await."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, DefinitionError, Middleware, Step, Workflows
from runr_workflows.testing import TestEngine
from sdk.python.tests.hooked_app import app, close_all, double

Body = Callable[..., Coroutine[Any, Any, Any]]
Kind = Callable[[Body], Callable[..., Any]]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes every registry; a coroutine that nobody has awaited or closed is told of here."""
    yield
    close_all()
    gc.collect()


def decorated(body: Body) -> Callable[..., Any]:
    """What a decorator for functions of any kind makes."""

    @functools.wraps(body)
    def timed(*args: Any) -> Any:
        return body(*args)

    return timed


def as_a_task(body: Body) -> Callable[..., Any]:
    """Begins at once where there is a loop."""

    def begun(*args: Any) -> Any:
        try:
            loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.Future(loop=_Closed())
        return loop.create_task(body(*args))

    return begun


class _Closed(asyncio.AbstractEventLoop):
    def get_debug(self) -> bool:
        return False

    def call_soon(self, *_: Any, **__: Any) -> Any:
        return None


def own_awaitable(body: Body) -> Callable[..., Any]:
    """With `__await__` alone."""

    class Result:
        def __init__(self, *args: Any) -> None:
            self._args = args

        def __await__(self) -> Generator[Any, Any, Any]:
            return body(*self._args).__await__()

    return Result


def async_object(body: Body) -> Callable[..., Any]:
    """An object whose `__call__` is async."""

    class Called:
        async def __call__(self, *args: Any) -> Any:
            return await body(*args)

    return Called()


LATE: list[Kind] = [decorated, own_awaitable, as_a_task]
"""That they return something to be awaited shows when they are called."""


def with_hook(hook: str, body: Body, kind: Kind) -> Middleware:
    """Middleware of one hook."""
    middleware = Middleware()
    setattr(middleware, hook, kind(body))
    return middleware


def one(wf: Workflows, bodies: list[int], *, is_async: bool) -> None:
    """A workflow of one step."""

    async def one_async(ctx: Context, step: AsyncStep) -> int:
        await step.run("pay", bodies.append, 1)
        return 5

    def one_sync(ctx: Context, step: Step) -> int:
        step.run("pay", bodies.append, 1)
        return 5

    wf.workflow("one", retries=0)(one_async if is_async else one_sync)


async def forbids(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise PermissionError("frozen account")


@pytest.mark.parametrize("kind", [*LATE, async_object])
@pytest.mark.parametrize(("hook", "ran"), [("invocation_starts", 0), ("step_starts", 0), ("encode", 1)])
def test_async_workflows_await_what_a_hook_returns(hook: str, ran: int, kind: Kind) -> None:
    wf = app(with_hook(hook, forbids, kind))
    bodies: list[int] = []
    one(wf, bodies, is_async=True)
    run = TestEngine(wf).run("one")
    assert (len(bodies), run.status) == (ran, "failed")
    assert run.error is not None
    assert run.error["message"].endswith("raised PermissionError: frozen account")


@pytest.mark.parametrize("kind", [*LATE, async_object])
@pytest.mark.parametrize("hook", ["step_ends", "invocation_ends"])
def test_the_ends_too(hook: str, kind: Kind) -> None:
    told = []

    async def tells(*_: Any) -> None:
        await asyncio.sleep(0)
        told.append(hook)

    wf = app(with_hook(hook, tells, kind))
    one(wf, [], is_async=True)
    assert TestEngine(wf).run("one").output == 5
    assert told == [hook] * (1 if hook == "step_ends" else 2)


@pytest.mark.parametrize("kind", [decorated, own_awaitable, as_a_task])
@pytest.mark.parametrize("hook", ["invocation_starts", "step_starts", "encode"])
def test_sync_workflows_refuse_it(hook: str, kind: Kind) -> None:
    wf = app(with_hook(hook, forbids, kind))
    bodies: list[int] = []
    one(wf, bodies, is_async=False)
    run = TestEngine(wf).run("one")
    assert (run.status, len(bodies)) == ("failed", 1 if hook == "encode" else 0)
    assert run.error is not None
    assert run.error["name"] == "MiddlewareError"
    assert "it has returned what is to be awaited" in run.error["message"]


@pytest.mark.parametrize("kind", [decorated, own_awaitable, as_a_task])
@pytest.mark.parametrize("hook", ["step_ends", "invocation_ends"])
def test_sync_workflows_say_so_at_the_ends(hook: str, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    wf = app(with_hook(hook, forbids, kind))
    one(wf, [], is_async=False)
    with caplog.at_level(logging.ERROR, "runr_workflows"):
        assert TestEngine(wf).run("one").output == 5
    assert "it has returned what is to be awaited" in caplog.text


@pytest.mark.parametrize("kind", [decorated, own_awaitable, as_a_task])
@pytest.mark.parametrize("is_async", [False, True])
def test_decode_is_never_awaited(is_async: bool, kind: Kind) -> None:
    async def decodes(value: Any, where: str) -> Any:
        raise AssertionError("it is not awaited")

    wf = app(with_hook("decode", decodes, kind))
    one(wf, [], is_async=is_async)
    run = TestEngine(wf).run("one")
    assert (run.status, run.error and run.error["name"]) == ("failed", "MiddlewareError")
    assert "for decode not even there" in str(run.error)


def test_an_object_that_is_async_is_refused_where_workflows_are_defined() -> None:
    async def nothing(*_: Any) -> None:
        return None

    with pytest.raises(DefinitionError, match="is async, and so must be the workflow"):
        one(app(with_hook("step_starts", nothing, async_object)), [], is_async=False)
    with pytest.raises(TypeError, match="is async, which decode cannot be"):
        app(with_hook("decode", nothing, async_object))


def test_what_is_awaited_is_what_counts() -> None:
    async def wraps(value: Any, where: str) -> Any:
        await asyncio.sleep(0)
        return {"wrapped": value}

    async def results(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    wf = app(with_hook("encode", wraps, decorated), with_hook("encode", wraps, own_awaitable))

    @wf.workflow("sum")
    async def total(ctx: Context, step: AsyncStep) -> int:
        return await results(step.run("double", double, 1))

    assert TestEngine(wf).run("sum").output == {"wrapped": {"wrapped": {"wrapped": {"wrapped": 2}}}}
