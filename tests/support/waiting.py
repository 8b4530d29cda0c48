"""Waiting for what tells nobody: the state of a database, a log, a process, the kernel's sockets.

What can tell is waited for there (an event, a condition, the end of a run). A bound is a guard and not a measure.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

GUARD_S = 30.0

_LOOK_S = 0.01
_LOOK_AT_PROCESSES_S = 0.05


async def until(holds: Callable[..., Any], guard_s: float = GUARD_S) -> Any:
    """What `holds` finds, once that is something. It is asked again and again, and may be async."""
    found = None
    bound = asyncio.timeout(guard_s)
    try:
        async with bound:
            while not (found := await _told(holds)):
                await asyncio.sleep(_LOOK_S)
            return found
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise AssertionError(f"not so within {guard_s:g} s; found last: {found!r}") from error


async def _told(holds: Callable[..., Any]) -> Any:
    found = holds()
    return await found if inspect.isawaitable(found) else found


def eventually(holds: Callable[..., object], what: str, guard_s: float = GUARD_S) -> None:
    """The same for a test without a loop, which looks at processes."""
    deadline = time.monotonic() + guard_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {guard_s:g} s: {what}"
        time.sleep(_LOOK_AT_PROCESSES_S)
