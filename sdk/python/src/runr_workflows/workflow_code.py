"""The code of an async workflow function, watched: whose turn it is to go on, and whether other code runs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any

from .async_step import PendingStep


def _nothing() -> None:
    """Tells nobody."""


class WorkflowCode(Coroutine[Any, Any, Any]):
    """A coroutine around that of the workflow function, made a task of in its place.

    Only code that has run in one line, from step to step, has certainly come to a step call in the order in which a
    replay comes to it: there, what waits for a stored result does not wait, and what waits for anything else does.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], resumed: Callable[[], None]) -> None:
        """`resumed` is called when the code goes on that waited for something other than its own step call."""
        self.in_call = False
        """Whether the code is in a step call of its own, whose body may do what it likes."""
        self.has_company = False
        """Whether it has started tasks other than of a step call alone: they may call steps at any time."""
        self._coroutine = coroutine
        self._resumed = resumed
        self._loop: asyncio.AbstractEventLoop | None = None
        """None until the code begins."""
        self._factory: Any = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Part of the coroutine protocol."""
        return self._go_on(self._coroutine.send, value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        """Part of the coroutine protocol."""
        try:
            return self._go_on(self._coroutine.throw, typ if val is None else val)
        finally:
            del typ, val  # else the error, whose traceback has this frame, would keep itself

    def close(self) -> None:
        """Part of the coroutine protocol."""
        self._coroutine.close()

    def let_go(self) -> None:
        """The code has ended: whoever was told of it is told nothing more."""
        self._resumed = _nothing

    def _go_on(self, resume: Callable[[Any], Any], value: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        elif not self.in_call:
            self._resumed()
        loop = self._loop
        self._factory = loop.get_task_factory()
        loop.set_task_factory(self._create)  # until the code waits: nothing else runs meanwhile
        try:
            return resume(value)
        finally:
            del value  # as above
            if loop.get_task_factory() == self._create:
                loop.set_task_factory(self._factory)

    def _create(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if not self.in_call and not isinstance(coroutine, PendingStep):
            self.has_company = True
        if self._factory is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return self._factory(loop, coroutine, **options)
