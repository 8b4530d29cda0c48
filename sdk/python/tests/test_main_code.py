"""Code that is cancelled at its own step call: told so at once, told so once, and free to wait in its clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runr_workflows.main_code import MainCode

Task = asyncio.Task[Any]


class Running:
    """Code in a task of its own, and when it was told to have ended."""

    def __init__(self, work: Callable[[Running], Awaitable[Any]]) -> None:
        self.ends = 0
        self.code = MainCode(self._work(work), self._ended)
        self.task: Task = asyncio.get_running_loop().create_task(self.code)

    async def _work(self, work: Callable[[Running], Awaitable[Any]]) -> Any:
        return await work(self)

    def _ended(self) -> None:
        self.ends += 1

    async def step(self) -> None:
        """As a step call that ends the invocation."""
        self.task.cancel()
        self.code.cancelled()
        raise asyncio.CancelledError


async def test_it_is_cancelled_in_the_pass_of_the_loop_in_which_it_asks_for_that() -> None:
    running = Running(lambda running: running.step())
    await asyncio.sleep(0)

    assert running.task.cancelled()
    assert running.ends == 1


async def pass_of_the_loop() -> None:
    await asyncio.sleep(0)


async def future() -> None:
    loop = asyncio.get_running_loop()
    given = loop.create_future()
    loop.call_later(0.01, given.set_result, None)
    await given


async def future_that_is_done_meanwhile() -> None:
    given = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(given.set_result, None)
    await given


async def timeout() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)


async def group() -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(pass_of_the_loop())


WAITS = [pass_of_the_loop, future, future_that_is_done_meanwhile, timeout, group]


@pytest.mark.parametrize("first", WAITS)
@pytest.mark.parametrize("second", WAITS)
async def test_a_clean_up_may_wait_and_is_not_cancelled_once_more(
    first: Callable[[], Awaitable[None]], second: Callable[[], Awaitable[None]]
) -> None:
    cancelling: list[int] = []

    async def work(running: Running) -> None:
        try:
            await running.step()
        finally:
            for wait in (first, second):
                cancelling.append(running.task.cancelling())
                await wait()
            cancelling.append(running.task.cancelling())

    running = Running(work)
    await asyncio.wait([running.task], timeout=30)

    assert running.task.cancelled()
    assert cancelling == [1, 1, 1]
    assert running.ends == 2, "told when it waited, and when it ended"


async def test_a_clean_up_that_waits_can_be_cancelled() -> None:
    told: list[str] = []

    async def work(running: Running) -> None:
        try:
            await running.step()
        finally:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("again")
                raise

    running = Running(work)
    for _ in range(4):
        await asyncio.sleep(0)
    assert (running.ends, told) == (1, [])
    running.task.cancel()
    await asyncio.wait([running.task], timeout=30)

    assert running.task.cancelled()
    assert told == ["again"]


async def test_code_that_swallows_its_cancellation_has_ended_all_the_same() -> None:
    async def work(running: Running) -> str:
        try:
            await running.step()
        except asyncio.CancelledError:
            return "goes on"
        return "not cancelled"

    running = Running(work)
    await asyncio.sleep(0)

    assert running.task.done()
    assert running.ends == 1


async def test_code_that_is_not_cancelled_is_an_ordinary_coroutine() -> None:
    async def work(running: Running) -> str:
        for wait in WAITS:
            await wait()
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "done"
        return "not cancelled"

    running = Running(work)

    assert await running.task == "done"
    assert running.ends == 1
