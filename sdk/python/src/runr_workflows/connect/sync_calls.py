"""Runs a sync workflow over the worker stream: in a thread, which blocks in its step calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any

from ..calls import StepCall
from ..interrupt import StepInterrupt
from ..invocation import Invocation
from ..replay import Report, executing, report_of_error, report_of_return
from .live_invocation import LiveInvocation
from .live_replay import LiveReplay, Stored
from .live_step import live_op, rests
from .worker_threads import WorkerThreads


class SyncCalls:
    """The step calls of one sync invocation, and the thread of its workflow function."""

    def __init__(
        self, invocation: Invocation, replay: LiveReplay, threads: WorkerThreads, ended: Callable[[], None]
    ) -> None:
        """`ended` is called on the loop when the workflow function has returned or raised."""
        self._invocation = invocation
        self._replay = replay
        self._threads = threads
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._thread = 0
        self._live: LiveInvocation | None = None

    def start(self, live: LiveInvocation) -> None:
        """Calls the workflow function."""
        self._live = live
        # A context of its own, in which a step call is known to be the workflow's and not a body's.
        self._threads.start(lambda: Context().run(self._run))

    def unwind(self) -> None:
        """Its blocked calls are interrupted; a body that is executed runs to its end and is dropped."""
        self._invocation.context.close()

    def commit(self, call: StepCall, step_id: str, report: Report) -> Stored | None:
        """As `Calls.commit`."""
        answer = _ThreadAnswer()
        sequential = threading.get_ident() == self._thread and rests(call)
        self._post(self._submit, step_id, report, answer, sequential)
        return self._stored(answer)

    def opened(self, step_id: str) -> Stored | None:
        """As `Calls.opened`."""
        answer = _ThreadAnswer()
        assert self._live is not None
        self._post(self._live.open, step_id, answer)
        return self._stored(answer)

    def left(self, step_id: str) -> None:
        """As `Calls.left`."""
        assert self._live is not None
        self._post(self._live.left, step_id)

    def refused(self) -> None:
        """As `Calls.refused`."""
        assert self._live is not None
        self._post(self._live.look)

    def _stored(self, answer: _ThreadAnswer) -> Stored | None:
        stored = answer.wait()
        self._replay.has_progressed = True  # a stored step resets the count, as it does in the engine
        return stored

    def _submit(self, step_id: str, report: Report, answer: _ThreadAnswer, sequential: bool) -> None:
        assert self._live is not None
        self._live.submit(live_op(step_id, report, answer), rests=sequential)

    def _run(self) -> None:
        self._thread = self._replay.thread = threading.get_ident()
        executing.set((self._replay, None))
        try:
            report = report_of_return(self._invocation.call_sync())
        except BaseException as error:
            report = report_of_error(error)
        try:
            self._post(self._concluded, report)
        except StepInterrupt:
            return  # the process is ending

    def _concluded(self, report: Report) -> None:
        assert self._live is not None
        self._live.concluded(report)
        self._ended()

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed
            raise StepInterrupt from None


class _ThreadAnswer:
    """A thread that waits."""

    __slots__ = ("_box",)

    def __init__(self) -> None:
        self._box: SimpleQueue[tuple[Stored | None] | None] = SimpleQueue()

    def give(self, stored: Stored | None) -> None:
        """As `Answer.give`."""
        self._box.put((stored,))

    def interrupt(self) -> None:
        """As `Answer.interrupt`."""
        self._box.put(None)

    def wait(self) -> Stored | None:
        """What was given. Raises StepInterrupt."""
        given = self._box.get()
        if given is None:
            raise StepInterrupt
        return given[0]
