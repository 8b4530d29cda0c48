"""Call again what met a passing fault of the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from services.core.domain.errors import Unavailable

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_PAUSES = (0.02, 0.1, 0.5, 1.0)


async def retrying(call: Callable[[int], Awaitable[Result]]) -> Result:
    """`await call(attempt)`, again after Unavailable, a few times. The call must recognize what an earlier attempt
    committed.

    That may happen while the next attempt is at it: its rows then meet those of the earlier one.
    """
    for attempt, pause in enumerate(_PAUSES):
        try:
            return await call(attempt)
        except (Unavailable, asyncpg.UniqueViolationError) as error:
            if attempt == 0 and not isinstance(error, Unavailable):
                raise
            await asyncio.sleep(pause)
    return await call(len(_PAUSES))


async def after_commit(work: Awaitable[object]) -> None:
    """Do what follows a commit for speed only: what it fails to do now is found by the scheduler's sweeps."""
    try:
        await work
    except Unavailable:
        log.warning("left to the scheduler: the database is away")
