"""Call again what met a passing fault of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.core.domain.errors import Unavailable

Result = TypeVar("Result")

_PAUSES = (0.02, 0.1, 0.5, 1.0)


async def retrying(call: Callable[[int], Awaitable[Result]]) -> Result:
    """`await call(attempt)`, again after Unavailable, a few times. The call must recognize what an earlier attempt
    committed.
    """
    for attempt, pause in enumerate(_PAUSES):
        try:
            return await call(attempt)
        except Unavailable:
            await asyncio.sleep(pause)
    return await call(len(_PAUSES))
