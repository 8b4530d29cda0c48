"""Runs async workflows: the asyncio side of an invocation. All rules of replay are in `replay.py`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Any

from .async_step import AsyncStep
from .calls import StepCall
from .drive import drive_async
from .errors import StepNotAwaitedError
from .interrupt import StepInterrupt
from .invocation import Invocation
from .replay import Body, Replay

_CLOSING_PASSES = 10
_FIRST_PASS_S = 0.05
_LATER_PASS_S = 1.0

_log = logging.getLogger("runr_workflows")


class AsyncRunner:
    """Runs async workflows on the loop it is called from; `executor` gives the threads for sync step functions."""

    def __init__(self, executor: Callable[[], Executor]) -> None:
        self._executor = executor
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, invocation: Invocation) -> str:
        """Runs the workflow until a step ends the invocation or it returns; the answer is the JSON of the op."""
        scope = _Scope(invocation.replay, self._execute)
        main = asyncio.ensure_future(_workflow(invocation, AsyncStep(scope)))
        main.add_done_callback(_retrieve)
        try:
            await asyncio.wait({main, scope.ended}, return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                await scope.body_ended()
                _settle(main, invocation.replay, scope)
            return invocation.op()
        finally:
            await self._close(invocation.workflow.name, main, scope)

    async def _close(self, name: str, main: asyncio.Task[Any], scope: _Scope) -> None:
        """Cancels what is left of the invocation; code that takes its time to end gets a task of its own for that."""
        left = scope.cancel(main)
        if not left:
            return
        await asyncio.wait(left, timeout=_FIRST_PASS_S)
        if scope.left(main):
            closing = asyncio.ensure_future(_close_slowly(name, main, scope))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _execute(self, body: Body) -> Any:
        """Executes the function of a step: an async one here, any other in a thread."""
        if _is_async(body.func):
            return await body()
        loop = asyncio.get_running_loop()
        value, error = await loop.run_in_executor(self._executor(), copy_context().run, _outcome, body)
        if error is not None:
            raise error
        return await value if inspect.isawaitable(value) else value


class _Scope:
    """The step calls of one invocation."""

    def __init__(self, replay: Replay, execute: Callable[[Body], Any]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the op is known, or when a body that outlived the workflow function was cancelled."""
        self.not_awaited: dict[str, None] = {}
        self._replay = replay
        self._execute = execute
        self._parked: set[asyncio.Task[Any]] = set()
        self._waiting_for_body = False

    def begin(self, call: StepCall) -> str:
        """The step id of a call; one that comes after the end is not refused but never resolves."""
        if self._replay.op is not None:
            return ""
        step_id = self._replay.begin(call)
        self.not_awaited[step_id] = None
        return step_id

    def perform(self, call: StepCall, step_id: str) -> Coroutine[Any, Any, Any]:
        """The memoized result; a call that ends the invocation, or comes after its end, never resolves."""
        self.not_awaited.pop(step_id, None)
        return self._perform(call, step_id)

    async def _perform(self, call: StepCall, step_id: str) -> Any:
        try:
            return await drive_async(self._replay.perform(call, step_id), self._execute)
        except StepInterrupt:
            pass
        finally:
            over = self._replay.op is not None or (self._waiting_for_body and not self._replay.is_executing)
            if over and not self.ended.done():
                self.ended.set_result(None)
        task = asyncio.current_task()
        assert task is not None
        self._parked.add(task)
        return await asyncio.get_running_loop().create_future()

    async def body_ended(self) -> None:
        """Waits for the body of a step that goes on after the workflow function has returned or raised.

        That step came first, so its op is the answer.
        """
        if self._replay.is_executing:
            self._waiting_for_body = True
            await self.ended

    def left(self, main: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
        """What has not ended yet: the workflow function, then tasks it left behind at a step call."""
        return {task for task in self._parked if not task.done()} if main.done() else {main}

    def cancel(self, main: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
        """Cancels what is left and returns it."""
        left = self.left(main)
        for task in left:
            task.cancel()
        return left


async def _workflow(invocation: Invocation, step: AsyncStep) -> Any:
    try:
        return await invocation.workflow.fn(invocation.context, step)
    except SystemExit as error:  # asyncio would let it end the loop, and every other run on it
        invocation.replay.fail(error)


def _settle(main: asyncio.Task[Any], replay: Replay, scope: _Scope) -> None:
    """Records the end of the workflow function; without effect if a step came first."""
    error = asyncio.CancelledError("the workflow cancelled its own task") if main.cancelled() else main.exception()
    if error is not None:
        replay.fail(error)
    elif scope.not_awaited:
        replay.fail(StepNotAwaitedError(list(scope.not_awaited)))
    else:
        replay.returned(main.result())


async def _close_slowly(name: str, main: asyncio.Task[Any], scope: _Scope) -> None:
    for _ in range(_CLOSING_PASSES):
        left = scope.left(main)
        if not left:
            return
        await asyncio.wait(left, timeout=_LATER_PASS_S)
        scope.cancel(main)
    _log.warning("workflow %s ignores the cancellation at the end of its invocation and is left behind", name)
    await asyncio.wait(scope.left(main) or {main})


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Whatever an unwound workflow raises has been judged already; asyncio need not warn that nobody looked."""
    if not task.cancelled():
        task.exception()


def _outcome(body: Body) -> tuple[Any, BaseException | None]:
    # As a pair, because a future cannot carry StopIteration.
    try:
        return body(), None
    except BaseException as error:
        return None, error


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
