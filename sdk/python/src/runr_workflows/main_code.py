"""The code of an async workflow function over HTTP, watched: its end is known at once, and so is a cancellation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any


class MainCode(Coroutine[Any, Any, Any]):
    """A coroutine around that of the workflow function, made a task of in its place.

    Done callbacks of a task come a pass of the loop after its end. The cancellation of a task that cancels itself comes
    to its code a pass after the next thing that it waits for: here the step call that cancels raises it right away, and
    what the task throws later is kept from the code, which has it already.
    """

    __slots__ = ("_coroutine", "_ended", "_held", "_is_due", "_is_held")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[], None]) -> None:
        """`ended` is called when the code ends, or waits for something although it has been cancelled."""
        self._coroutine = coroutine
        self._ended = ended
        self._is_due = False
        self._is_held = False
        self._held: Any = None

    def cancelled(self) -> None:
        """The code has cancelled its task, which runs it now, and is about to raise the cancellation."""
        self._is_due = True

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Part of the coroutine protocol."""
        if self._is_held:
            return self._take()
        try:
            waits_for = self._coroutine.send(value)
        except BaseException:
            self._ended()
            raise
        return self._hold(waits_for) if self._is_due else waits_for

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        """Part of the coroutine protocol."""
        if self._is_held:
            return self._take()
        try:
            waits_for = self._coroutine.throw(typ if val is None else val)
        except BaseException:
            self._ended()
            raise
        finally:
            del typ, val  # else the error, whose traceback has this frame, would keep itself
        return self._hold(waits_for) if self._is_due else waits_for

    def close(self) -> None:
        """Part of the coroutine protocol."""
        self._coroutine.close()

    def _hold(self, waits_for: Any) -> None:
        """A task that is to be cancelled would cancel what it waits for: it gets a pass of the loop to wait for."""
        self._is_due, self._is_held, self._held = False, True, waits_for
        self._ended()

    def _take(self) -> Any:
        """The task throws the cancellation, and hears now what the code waits for."""
        self._is_held = False
        held, self._held = self._held, None
        return held
