"""Many calls, some at once: how a workload makes its load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count


async def in_flight(total: int, at_once: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Calls with 0 … total-1, `at_once` of them at a time. The first that fails ends all."""
    numbers = count()

    async def work() -> None:
        while (number := next(numbers)) < total:
            await call(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, total)):
            group.create_task(work())
