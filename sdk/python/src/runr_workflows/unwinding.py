"""How the tasks of an async invocation end that has nothing left to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

_PASSES = 10
_FIRST_PASS_S = 0.05
_LATER_PASS_S = 1.0

_log = logging.getLogger("runr_workflows")

Tasks = set[asyncio.Task[Any]]
Behind = Callable[[], Tasks]
"""The tasks at a step call that will never return, those that have ended apart."""


class Unwinding:
    """Cancels what is left of invocations: the task of the workflow function, then those that it leaves behind.

    It has a moment to end by itself what it has started. If it does not, it may be waiting for just that (a TaskGroup
    that has cancelled its tasks once does not do so again): they are cancelled beside it. Code that takes its time to
    end gets a task of its own for that.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def unwind(self, name: str, main: asyncio.Task[Any], behind: Behind, *, is_cancelled: bool) -> None:
        """Cancels, and waits for a moment. `name` of the workflow is for the log.

        `is_cancelled`: `main` has been cancelled already, and is only waited for.
        """
        tasks = _first(main, behind)
        if main.done() or not is_cancelled:
            _cancel(tasks)
        if tasks:
            await _moment(tasks)
            if _left(main, behind):
                self._go_on(_unwind(name, main, behind, tasks))

    def start(self, name: str, main: asyncio.Task[Any], behind: Behind, ended: Callable[[], None]) -> None:
        """Cancels and does not wait; `ended` is called when nothing is left."""
        tasks = _cancel(_first(main, behind))
        if tasks:
            unwinding = _unwind(name, main, behind, tasks, first_s=_FIRST_PASS_S)
            self._go_on(unwinding).add_done_callback(lambda _: ended())
        else:
            ended()

    def _go_on(self, unwinding: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(unwinding)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _cancel(tasks: Tasks) -> Tasks:
    for task in tasks:
        task.cancel()
    return tasks


async def _moment(tasks: Tasks) -> None:
    """Until one task has ended that is the only one, or for a while. `asyncio.wait` would cost more than all the rest
    of an invocation's end.
    """
    if len(tasks) > 1:
        await asyncio.wait(tasks, timeout=_FIRST_PASS_S)
        return
    (task,) = tasks
    loop = task.get_loop()
    over = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    task.add_done_callback(end)
    alarm = loop.call_later(_FIRST_PASS_S, end)
    try:
        await over
    finally:
        alarm.cancel()
        task.remove_done_callback(end)


async def _unwind(
    name: str, main: asyncio.Task[Any], behind: Behind, cancelled: Tasks, *, first_s: float | None = None
) -> None:
    """Goes on until nothing is left. A task is given a while for its clean-up before it is cancelled once more."""
    if first_s is not None:
        await asyncio.wait(cancelled, timeout=first_s)
    for _ in range(_PASSES):
        tasks = _left(main, behind)
        if not tasks:
            return
        _cancel(tasks - cancelled)
        _, slow = await asyncio.wait(tasks, timeout=_LATER_PASS_S)
        cancelled = (cancelled | tasks) - slow
    _log.warning("workflow %s ignores the cancellation at the end of its invocation and is left behind", name)
    while tasks := _left(main, behind):
        await asyncio.wait(tasks)


def _first(main: asyncio.Task[Any], behind: Behind) -> Tasks:
    return behind() if main.done() else {main}


def _left(main: asyncio.Task[Any], behind: Behind) -> Tasks:
    return behind() if main.done() else {main, *behind()}
