"""Runs async workflows: the asyncio side of an invocation. All rules of replay are in `replay.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from threading import get_ident
from typing import Any

from .async_bodies import AsyncBodies
from .async_step import AsyncStep, PendingStep, in_view_of
from .calls import StepCall
from .drive import drive_async
from .interrupt import StepInterrupt
from .invocation import Invocation
from .kept import HookedBody
from .main_code import MainCode
from .nested_wait import NestedWait
from .replay import Body, Replay
from .unwinding import Unwinding
from .workflow_code import WorkflowCode


class AsyncRunner:
    """Runs async workflows on the loop it is called from; `executor` gives the threads for sync step functions."""

    def __init__(self, executor: Callable[[], Executor]) -> None:
        self._bodies = AsyncBodies(executor)
        self._unwinding = Unwinding()

    async def run(self, invocation: Invocation) -> str:
        """Runs the workflow until a step ends the invocation or it returns; the answer is the JSON of the ops."""
        replay = invocation.replay
        scope = _Scope(replay, self._bodies.execute)
        code: Coroutine[Any, Any, Any] = run_workflow(invocation, AsyncStep(scope))
        if scope.takes_turns:
            code = scope.code = WorkflowCode(code, scope.went_on)
        scope.main_code = MainCode(code, scope.end)
        main = scope.main = scope.loop.create_task(scope.main_code)
        try:
            await scope.ended
            if replay.op is None:
                await scope.body_ended()
                _settle(main, replay, scope)
            return invocation.op()
        finally:
            replay.is_abandoned = True
            scope.close()
            try:
                if not main.done() or scope.has_behind:
                    name, is_cancelled = invocation.workflow.name, scope.is_cancelled
                    await self._unwinding.unwind(name, main, scope.behind, is_cancelled=is_cancelled)
            finally:
                scope.let_go(main)


class _Scope:
    """The step calls of one invocation."""

    def __init__(self, replay: Replay, execute: Callable[[Body], Awaitable[Any]]) -> None:
        self.loop = asyncio.get_running_loop()
        self.takes_turns = replay.takes_turns
        self.ended: asyncio.Future[None] = self.loop.create_future()
        """Done when the op is known, the workflow function has ended, or a body that outlived it was cancelled."""
        self.not_awaited: dict[str, None] = {}
        self.main: asyncio.Task[Any] | None = None
        """The task of the workflow function."""
        self.main_code: MainCode | None = None
        """Its code."""
        self.code: WorkflowCode | None = None
        """The same, where that may go on from step to step."""
        self.is_cancelled = False
        """Whether that task has cancelled itself, as the op is known."""
        self._replay = replay
        self._execute = execute
        self._parked: set[asyncio.Task[Any]] = set()
        self._waiting_for_body = False
        self._turn = asyncio.Lock() if self.takes_turns else None
        self._pending = 0
        self._is_unsure = False
        self._thread = get_ident()
        self._body: asyncio.Task[Any] | None = None
        self._nested: NestedWait | None = None

    def end(self) -> None:
        """The workflow function has ended, or need not be waited for."""
        if not self.ended.done():
            self.ended.set_result(None)

    def begin(self, call: StepCall) -> str:
        """The step id of a call; one that comes after the end is not refused but never resolves."""
        if self._replay.op is not None:
            return ""
        if not self._is_in_main():
            self._has_company()
        elif self._pending or self._is_unsure:
            self._replay.end_with_next()
        step_id = self._replay.begin(call)
        self.not_awaited[step_id] = None
        return step_id

    def _has_company(self) -> None:
        """A call by other code than the workflow function itself."""
        self._replay.end_with_next()
        if self._replay.watch is not None:
            self._replay.watch.concurrent = True
        if self.code is not None:
            self.code.has_company = True

    def _is_in_main(self) -> bool:
        return get_ident() == self._thread and asyncio.current_task(self.loop) is self.main

    def went_on(self) -> None:
        """The workflow function goes on that waited for something else than a step call of its own.

        With stored results it may go on later than the tasks beside it: from now on, calls may come in another order.
        """
        is_live = self._replay.is_executing or self._replay.has_progressed
        has_company = self.code is not None and self.code.has_company
        self._is_unsure = self._is_unsure or (is_live and (has_company or self._pending > 0))

    def known(self, call: StepCall, step_id: str) -> Generator[Any, Any, Any] | None:
        """The result that is stored: nearly every call of a replay has one, and needs no coroutine for it."""
        stored = self._replay.stored(step_id)
        if stored is None or stored.get("status") != "completed" or self._waiting_for_body:
            return None
        if self.code is not None and not self._is_in_main():
            return None
        self.not_awaited.pop(step_id, None)
        return _given(self._replay.recall(call, step_id, stored))

    def perform(self, call: StepCall, step_id: str) -> Coroutine[Any, Any, Any]:
        """The memoized result; a call that ends the invocation, or comes after its end, never resolves."""
        self.not_awaited.pop(step_id, None)
        return self._perform(call, step_id)

    async def _perform(self, call: StepCall, step_id: str) -> Any:
        task = asyncio.current_task(self.loop)
        assert task is not None
        is_main, is_interrupted = task is self.main, False
        if self.code is not None:
            self.code.has_company |= not is_main and not isinstance(task.get_coro(), PendingStep)
            self.code.in_call |= is_main
        try:
            self._replay.refuse_nested(call, "awaited")
            stored = self._replay.stored(step_id)
            if stored is not None:
                return self._replay.recall(call, step_id, stored)
            if self._turn is None:
                return await drive_async(self._replay.perform(call, step_id), self._done)
            return await self._in_turn(self._turn, call, step_id)
        except StepInterrupt:
            is_interrupted = True
        finally:
            if not (is_main and is_interrupted):
                self._look()
            if self.code is not None and is_main:
                self.code.in_call = False
        if not is_main:
            self._parked.add(task)
        if self._replay.is_executing:
            self._waits(task, call)
        del task  # see let_go
        if is_main and self._replay.is_closed and not self.is_cancelled:
            self._cancel_main()
            raise asyncio.CancelledError
        return await self.loop.create_future()

    def _cancel_main(self) -> None:
        """A call of the workflow function itself has ended the invocation, and the function ends with it: it has mostly
        ended then when the runner hears of the op, and is not waited for.
        """
        assert self.main is not None
        assert self.main_code is not None
        self.is_cancelled = True
        self.main.cancel()
        self.main_code.cancelled()

    def _look(self) -> None:
        """Whether the invocation has ended."""
        if self._replay.is_closed or (self._waiting_for_body and not self._replay.is_executing):
            self.end()

    async def _in_turn(self, turn: asyncio.Lock, call: StepCall, step_id: str) -> Any:
        """As without turns, after the calls that came before; the code after a call goes on before the next has its."""
        self._pending += 1
        task = asyncio.current_task(self.loop)
        assert task is not None
        if turn.locked():
            self._waits(task, call)
        try:
            async with turn:
                if self._nested is not None:
                    self._nested.goes_on(task)
                if self.code is not None and self.code.has_company and not self._is_in_main():
                    self._replay.end_with_next()  # in a replay, code of other tasks may come to a call before this one
                return await drive_async(self._replay.perform(call, step_id), self._done)
        finally:
            self._pending -= 1

    def _done(self, body: Body | HookedBody) -> Awaitable[Any]:
        """What a flow asks for."""
        return body.run(self._run, self._replay) if isinstance(body, HookedBody) else self._run(body)

    def _run(self, body: Body) -> Awaitable[Any]:
        """Executes the body of a step, in the task that calls this."""
        self._body = asyncio.current_task(self.loop)
        return self._execute(body)

    def _waits(self, task: asyncio.Task[Any], call: StepCall) -> None:
        """A call comes while the body of another step is executed."""
        if self._nested is None:
            self._nested = NestedWait(self.loop, lambda: self._body, self._refuse_nested)
        self._nested.waits(task, call.user_id)

    def _refuse_nested(self, inner: str) -> None:
        """The body that is executed waits for a call, which waits for it."""
        self._replay.refuse_nested_wait(inner)
        self.end()

    async def body_ended(self) -> None:
        """Waits for the body of a step that goes on after the workflow function has returned or raised.

        That step came first, so its op is the answer.
        """
        if self._replay.is_executing:
            self._waiting_for_body = True
            self._replay.end_with_next()
            self.ended = self.loop.create_future()
            await self.ended

    def close(self) -> None:
        """The answer is known, or nobody waits for it any more."""
        self._body = None
        if self._nested is not None:
            self._nested.close()
            self._nested = None

    @property
    def has_behind(self) -> bool:
        """Whether there are such tasks as `behind` returns."""
        return bool(self._parked) and bool(self.behind())

    def behind(self) -> set[asyncio.Task[Any]]:
        """The tasks that the workflow function has left at a step call which never returns."""
        return {task for task in self._parked if not task.done()}

    def let_go(self, main: asyncio.Task[Any]) -> None:
        """Forget the tasks that have ended: each keeps the cancellation that ended it, with frames that keep this.

        What is freed so needs no look for garbage, which would cost more than all the rest of an invocation.
        """
        if not main.done():
            main.add_done_callback(_heard)
            return
        _heard(main)
        if not self.has_behind:
            self.main = self.main_code = None
            self._parked.clear()
            if self.code is not None:
                self.code.let_go()


def _heard(main: asyncio.Task[Any]) -> None:
    """What an unwound function raises has been judged: asyncio need not warn."""
    if not main.cancelled():
        main.exception()


def _given(value: Any) -> Generator[Any, Any, Any]:
    """What awaiting a value comes to that is there."""
    yield from ()
    return value


async def run_workflow(invocation: Invocation, step: AsyncStep) -> Any:
    """Runs the workflow function. SystemExit fails the invocation: asyncio would let it end the loop, and all on it."""
    try:
        return await invocation.workflow.fn(invocation.context, step)
    except SystemExit as error:
        invocation.replay.fail(error)


def outcome(main: asyncio.Task[Any]) -> tuple[Any, BaseException | None]:
    """What the workflow function returned, and what it raised."""
    if main.cancelled():
        return None, asyncio.CancelledError("the workflow cancelled its own task")
    error = main.exception()
    return (main.result() if error is None else None), error


def _settle(main: asyncio.Task[Any], replay: Replay, scope: _Scope) -> None:
    """Records the end of the workflow function; without effect if a step came first."""
    value, error = outcome(main)
    error = in_view_of(scope.not_awaited, error)
    if error is not None:
        replay.fail(error)
    else:
        replay.returned(value)
