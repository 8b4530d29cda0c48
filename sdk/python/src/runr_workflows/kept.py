"""What user code cannot cancel: what is left to do once a body, or the workflow function, has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from .drive import drive_async
from .replay import Body


class Keeper(Protocol):
    """The invocation that something belongs to which is to be finished."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the invocation counts any more: what cancels now is its end."""

    def cancelled(self) -> None:
        """User code has cancelled a step call, in its task, whose result is about to be recorded.

        What code does after that does not count: a replay, which has the result, goes another way.
        """


@dataclass(frozen=True, slots=True)
class HookedBody:
    """A body with the hooks around it, which a driver on a loop runs as one, in a task of its own.

    So it can be finished whatever becomes of the task that waits for it, and what the hook before the body puts into
    context variables is what the hook after it finds.
    """

    flow: Generator[Any, Any, Any]
    has_ended: Callable[[], bool]
    """Whether the body has returned or raised."""

    async def run(self, execute: Callable[[Body], Awaitable[Any]], keeper: Keeper) -> Any:
        """What is stored. A cancellation cancels the body, but not what comes after it."""
        return await keep(drive_async(self.flow, execute), keeper, self.has_ended)


async def keep(work: Coroutine[Any, Any, Any], keeper: Keeper, is_kept: Callable[[], bool] = lambda: True) -> Any:
    """What the work comes to. A cancellation is passed on to it, and waited for; once it is kept, it is only told."""
    task = asyncio.ensure_future(_settled(work))
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if is_kept() and not keeper.is_over:
                keeper.cancelled()
            else:
                task.cancel()
    if task.cancelled():  # before it began
        raise asyncio.CancelledError
    value, error = task.result()
    if error is None:
        return value
    try:
        raise error
    finally:
        del error, task  # else the error, whose traceback has this frame, would keep itself


async def _settled(work: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    # As a pair: SystemExit out of a task would end the loop.
    try:
        return await work, None
    except BaseException as error:
        return None, error
