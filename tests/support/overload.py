"""Asking for more than can be done, until somebody says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Asking = Coroutine[Any, Any, list[Any]]
_PAUSE_S = 0.3


async def until_refused(ask: Callable[[], Asking]) -> tuple[Any, list[asyncio.Task[list[Any]]]]:
    """Ask for one thing again and again while nothing can be done: the first answer, and who still waits."""
    asked: list[asyncio.Task[list[Any]]] = []
    async with asyncio.timeout(20):
        while True:
            asked.append(asyncio.create_task(ask()))
            done, _ = await asyncio.wait(asked, timeout=_PAUSE_S, return_when=asyncio.FIRST_COMPLETED)
            if done:
                (answer,) = done.pop().result()
                return answer, [task for task in asked if not task.done()]
