"""Runs an async workflow over the worker stream: its step calls wait on the loop, side by side.

Only calls that the workflow function makes in the order of a replay (`turns.py`) are live: they go on after their
acknowledgement. Of any other call, only the first one that a replay comes to is executed, alone, as over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from threading import get_ident
from typing import Any

from ..async_bodies import AsyncBodies
from ..async_runner import outcome, run_workflow
from ..async_step import AsyncStep, PendingStep, in_view_of
from ..calls import StepCall
from ..drive import drive_async
from ..interrupt import StepInterrupt
from ..invocation import Invocation
from ..kept import HookedBody
from ..replay import Body, Report, report_of_error, report_of_return
from ..unwinding import Tasks, Unwinding
from ..workflow_code import WorkflowCode
from .live_invocation import LiveInvocation
from .live_replay import LiveReplay, Stored
from .live_step import live_op, rests
from .turns import Queue, Turns

_PASSES = 2
"""Passes of the loop after which whatever was started together with a step call has made its own first call."""


class AsyncCalls:
    """The step calls of one async invocation, and the task of its workflow function."""

    def __init__(
        self,
        invocation: Invocation,
        replay: LiveReplay,
        bodies: AsyncBodies,
        unwinding: Unwinding,
        ended: Callable[[], None],
    ) -> None:
        """`ended` is called when no code of the invocation runs any more."""
        self._invocation = invocation
        self._replay = replay
        self._execute = bodies.execute
        self._unwinding = unwinding
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._not_awaited: dict[str, None] = {}
        self._in_call: dict[object, asyncio.Task[Any]] = {}
        self._main: asyncio.Task[Any] | None = None
        self._code = WorkflowCode(run_workflow(invocation, AsyncStep(self)), self._went_on)
        self._turns = Turns(replay, self._code)
        self._answered = Queue()
        self._live: LiveInvocation | None = None
        self._given_up: set[asyncio.Task[Any] | None] = set()
        """Tasks that have given up a call whose result is about to be sent, or on its way."""

    def start(self, live: LiveInvocation) -> None:
        """Calls the workflow function."""
        self._live = live
        self._main = self._loop.create_task(self._code)
        self._main.add_done_callback(self._main_ended)

    def unwind(self) -> None:
        """Cancels what is left of the invocation."""
        self._invocation.context.close()
        if self._main is None:
            self._code.close()
        else:
            self._unwinding.start(self._invocation.workflow.name, self._main, self._behind, self._let_go)

    def _let_go(self) -> None:
        """No code of the invocation runs any more. What holds itself in a ring is opened, or only a look for garbage
        would free it, which costs a fifth of all that a worker does.
        """
        self._main = None
        self._given_up.clear()
        self._code.let_go()
        self._replay.calls = None
        self._ended()

    def begin(self, call: StepCall) -> str:
        """As `StepScope.begin`: a call that comes after the end is not refused but never resolves."""
        if self._replay.is_closed:
            return ""
        is_in_main = self._is_in_main()
        step_id = self._replay.begin(call)
        self._not_awaited[step_id] = None
        if self._replay.looks_back is not None and (self._code.has_company or not is_in_main):
            self._replay.looks_back.concurrent = True
        if not self._turns.begin(step_id, is_in_main=is_in_main):
            self._hold()
        return step_id

    def _is_in_main(self) -> bool:
        return get_ident() == self._thread and asyncio.current_task(self._loop) is self._main

    def known(self, call: StepCall, step_id: str) -> None:
        """As `StepScope.known`: here every call has its turn."""

    def perform(self, call: StepCall, step_id: str) -> Coroutine[Any, Any, Any]:
        """As `StepScope.perform`: the result once it is acknowledged; never, if the invocation is over."""
        self._not_awaited.pop(step_id, None)
        return self._perform(call, step_id)

    async def _perform(self, call: StepCall, step_id: str) -> Any:
        self._replay.refuse_nested(call, "awaited")  # interrupts the body, whose end is waited for
        place: object = step_id or object()  # calls that come after the end have no id
        task = asyncio.current_task(self._loop)  # to ask for the running loop takes a system call
        assert task is not None
        self._in_call[place] = task
        is_main = task is self._main
        self._code.in_call = self._code.in_call or is_main
        self._code.has_company |= not is_main and not isinstance(task.get_coro(), PendingStep)
        del task  # a task keeps the cancellation that ended it, with this frame
        try:
            while not (self._replay.is_closed or self._turns.take(step_id)):
                await self._turn_comes()
            if not (is_main or self._replay.knows(step_id)):
                self._answered.append(place)
            return await drive_async(self._replay.perform(call, step_id), self._done)
        except StepInterrupt:
            return await self._loop.create_future()
        finally:
            del self._in_call[place]
            self._answered.remove(place)
            if is_main:
                self._code.in_call = False

    def _done(self, body: Body | HookedBody) -> Awaitable[Any]:
        """What a flow asks for."""
        return body.run(self._execute, self) if isinstance(body, HookedBody) else self._execute(body)

    @property
    def is_over(self) -> bool:
        """As `Keeper.is_over`."""
        return self._replay.over

    def cancelled(self) -> None:
        """As `Keeper.cancelled`: the code goes on in the next invocation. This one is not left waiting, as it is over
        HTTP: nobody would cancel it once more if the loop ended.
        """
        self._given_up.add(asyncio.current_task(self._loop))
        self._hold()

    async def _turn_comes(self) -> None:
        if not self._turns.is_alone:
            self._hold()
        await self._turns.wait()

    def _hold(self) -> None:
        assert self._live is not None
        self._live.hold()
        self._loop.call_soon_threadsafe(self._live.look)

    def _went_on(self) -> None:
        self._turns.went_on(others_are_pending=bool(self._in_call))

    async def commit(self, call: StepCall, step_id: str, report: Report) -> Stored | None:
        """As `Calls.commit`."""
        assert self._live is not None
        answer = _FutureAnswer(self._loop)
        sequential = call.body is None and not self._not_awaited and self._in_call[step_id] is self._main
        self._live.submit(
            live_op(step_id, report, answer),
            rests=sequential and rests(call),
            passes=_PASSES,
            goes_alone=self._turns.is_alone,
        )
        if self._given_up and asyncio.current_task(self._loop) in self._given_up:
            raise asyncio.CancelledError
        try:
            stored = await answer.future
            if step_id in self._answered:
                await self._answered.first(step_id)
        except asyncio.CancelledError:
            if call.body is not None and not self.is_over:
                self.cancelled()
            raise
        return self._given(stored)

    async def opened(self, step_id: str) -> Stored | None:
        """As `Calls.opened`."""
        assert self._live is not None
        answer = _FutureAnswer(self._loop)
        self._live.open(step_id, answer)
        stored = await answer.future
        if step_id in self._answered:
            await self._answered.first(step_id)
        return self._given(stored)

    def _given(self, stored: Stored | None) -> Stored | None:
        if self._replay.is_closed:
            raise StepInterrupt
        self._replay.has_progressed = True  # a stored step resets the count, as it does in the engine
        return stored

    def left(self, step_id: str) -> None:
        """As `Calls.left`."""
        assert self._live is not None
        self._live.left(step_id)
        if self._live.starts_over():
            self._turns.start_over()

    def refused(self) -> None:
        """As `Calls.refused`; a nested call may come from the thread of a sync body."""
        assert self._live is not None
        self._loop.call_soon_threadsafe(self._live.look)

    def _main_ended(self, main: asyncio.Task[Any]) -> None:
        assert self._live is not None
        value, error = outcome(main)
        error = in_view_of(self._not_awaited, error)
        if not self._replay.over:
            self._live.concluded(report_of_return(value) if error is None else report_of_error(error))

    def _behind(self) -> Tasks:
        return {task for task in self._in_call.values() if not task.done()} - {self._main}


class _FutureAnswer:
    """A coroutine that waits. It is never interrupted: its task is cancelled when the invocation is unwound."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Stored | None] = loop.create_future()

    def give(self, stored: Stored | None) -> None:
        """As `Answer.give`; a call that user code has cancelled is not waited for."""
        if not self.future.done():
            self.future.set_result(stored)

    def interrupt(self) -> None:
        """As `Answer.interrupt`."""
