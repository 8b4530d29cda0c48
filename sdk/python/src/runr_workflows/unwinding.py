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
Left = Callable[[], Tasks]
"""The tasks that have not ended and are to be cancelled next: the workflow function's, then those it left behind."""


class Unwinding:
    """Cancels what is left of invocations; code that takes its time to end gets a task of its own for that."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def unwind(self, name: str, left: Left) -> None:
        """Cancels, and waits for a moment. `name` of the workflow is for the log."""
        tasks = _cancel(left())
        if tasks:
            await _moment(tasks)
            if left():
                self._go_on(_unwind(name, left, tasks))

    def start(self, name: str, left: Left, ended: Callable[[], None]) -> None:
        """Cancels and does not wait; `ended` is called when nothing is left."""
        tasks = _cancel(left())
        if tasks:
            self._go_on(_unwind(name, left, tasks)).add_done_callback(lambda _: ended())
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


async def _unwind(name: str, left: Left, cancelled: Tasks) -> None:
    """Goes on until nothing is left. A task is given a while for its clean-up before it is cancelled once more."""
    for _ in range(_PASSES):
        cancelled = cancelled | _cancel(left() - cancelled)
        tasks = left()
        if not tasks:
            return
        _, slow = await asyncio.wait(tasks, timeout=_LATER_PASS_S)
        cancelled = cancelled - slow
    _log.warning("workflow %s ignores the cancellation at the end of its invocation and is left behind", name)
    while tasks := left():
        await asyncio.wait(tasks)
