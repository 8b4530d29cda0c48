"""Executes the functions of steps on an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextvars import copy_context
from types import CodeType
from typing import Any

from .replay import Body


class AsyncBodies:
    """Executes an async function here, any other in a thread of `executor`."""

    def __init__(self, executor: Callable[[], Executor]) -> None:
        self._executor = executor

    def execute(self, body: Body) -> Awaitable[Any]:
        """What the function returns, awaited if it must be. May raise what it raises when it is called."""
        return body() if _is_async(body.func) else self._in_thread(body)

    async def _in_thread(self, body: Body) -> Any:
        loop = asyncio.get_running_loop()
        value, error = await loop.run_in_executor(self._executor(), copy_context().run, _outcome, body)
        if error is not None:
            raise error
        return await value if inspect.isawaitable(value) else value


def _outcome(body: Body) -> tuple[Any, BaseException | None]:
    # As a pair, because a future cannot carry StopIteration.
    try:
        return body(), None
    except BaseException as error:
        return None, error


def _is_async(fn: Callable[..., Any]) -> bool:
    code = getattr(fn, "__code__", None)
    if type(code) is CodeType and code.co_flags & inspect.CO_COROUTINE:
        return True  # what nearly all are, and the quickest to tell
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
