"""Two drivers for one flow: a generator yields what is to be done and is sent the result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Todo = TypeVar("Todo")
Done = TypeVar("Done")
Result = TypeVar("Result")


def drive(flow: Generator[Todo, Done, Result], perform: Callable[[Todo], Done]) -> Result:
    """Runs a flow to its end; what `perform` raises is raised inside the flow."""
    try:
        todo = next(flow)
        while True:
            try:
                done = perform(todo)
            except BaseException as error:
                todo = flow.throw(error)
            else:
                todo = flow.send(done)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        flow.close()


async def drive_async(flow: Generator[Todo, Done, Result], perform: Callable[[Todo], Awaitable[Done]]) -> Result:
    """The same with an awaited `perform`. A cancellation of the task that drives closes the flow and passes through."""
    try:
        todo = next(flow)
        while True:
            try:
                done = await perform(todo)
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                    raise
                todo = flow.throw(error)
            else:
                todo = flow.send(done)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        flow.close()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
