"""Notices a body that waits for a step call which waits for that body: a call that was made a task of outside of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

Task = asyncio.Task[Any]

_FIRST_LOOK_S = 0.05
_LONGEST_PAUSE_S = 1.0


class NestedWait:
    """Looks, as long as calls wait while the body of another step is executed, whether it is for them that it waits.

    Such a body would never end, as its step comes first. There is no event to see that by: what a task waits for is
    known to asyncio alone. So it is looked at now and then, and only while there are calls that wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, body: Callable[[], Task | None], refuse: Callable[[str], None]
    ) -> None:
        """`body` tells the task in which the body is executed; `refuse` is told once which call it waits for."""
        self._loop = loop
        self._body = body
        self._refuse = refuse
        self._waiting: dict[Task, str] = {}
        self._alarm: asyncio.TimerHandle | None = None

    def waits(self, task: Task, name: str) -> None:
        """A call waits for the end of the body that is executed now."""
        self._waiting[task] = name
        if self._alarm is None:
            self._alarm = self._loop.call_later(_FIRST_LOOK_S, self._look, _FIRST_LOOK_S)

    def goes_on(self, task: Task) -> None:
        """It waits no longer."""
        self._waiting.pop(task, None)

    def close(self) -> None:
        """The invocation has ended."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._waiting.clear()

    def _look(self, pause_s: float) -> None:
        self._alarm = None
        body = self._body()
        if not self._waiting or body is None:
            return
        for task in _waited_for(body):
            if task in self._waiting:
                self._refuse(self._waiting[task])
                return
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._alarm = self._loop.call_later(pause_s, self._look, pause_s)


def _waited_for(task: Task) -> Iterator[Task]:
    """The tasks that a task waits for, as far as asyncio says: directly, through other tasks, and in a gathering."""
    seen: set[int] = set()
    left: list[Any] = [task]
    while left:
        future = left.pop()
        if future is None or id(future) in seen or future.done():
            continue
        seen.add(id(future))
        if isinstance(future, asyncio.Task):
            yield future
            left.append(getattr(future, "_fut_waiter", None))
        else:
            left.extend(getattr(future, "_children", ()))
