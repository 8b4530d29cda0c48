"""A coroutine without a task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Driven:
    """Drives a coroutine at once as far as it comes, and on whenever that is there which it waits for.

    For what is done at every request: a task costs more than all that its loop does for it, and begins only at the next
    pass of the loop. There is no `asyncio.current_task()` in such a coroutine, so it is nothing for code of users.
    """

    __slots__ = ("_coroutine", "_is_cancelled", "_loop", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._waits_for: asyncio.Future[Any] | None = None
        self._is_cancelled = False

    def go_on(self, _: object = None) -> None:
        """Goes on. Errors are told to the loop's handler."""
        try:
            if self._is_cancelled:
                self._is_cancelled = False
                waited = self._coroutine.throw(asyncio.CancelledError())
            else:
                waited = self._coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            return
        except Exception as error:
            told = {"message": "nobody awaits this coroutine", "exception": error, "future": self._coroutine}
            self._loop.call_exception_handler(told)
            return
        self._waits_for = waited
        if waited is None:  # for a pass of the loop
            self._loop.call_soon(self.go_on)
        else:
            waited._asyncio_future_blocking = False  # by this, a future knows that it was awaited
            waited.add_done_callback(self.go_on)

    def cancel(self) -> None:
        """As that of a task: cancels what is waited for."""
        if self._waits_for is None or not self._waits_for.cancel():
            self._is_cancelled = True
