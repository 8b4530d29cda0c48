"""Lists, newest first, at a bounded cost: ids are taken from an index in growing windows and held against the filter.

Ids are time-ordered, so the order is stable, and a page goes on behind the last id whatever happened since. A filter
that hits few of many rows stops after some windows; the caller goes on behind the last id that was looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

Source = Callable[[UUID, int], Awaitable[Sequence[UUID]]]
"""The ids below one, newest first, at most so many."""

Sieve = Callable[[Sequence[UUID], int], Awaitable[Sequence[UUID]]]
"""Those of the ids that are wanted, newest first, at most so many."""

MAX_WINDOW = 5_000
_ROUNDS = 10
_GROWTH = 4


async def walk(
    source: Source, sieve: Sieve, *, below: UUID, limit: int, max_window: int = MAX_WINDOW
) -> tuple[list[UUID], UUID | None]:
    """At most `limit` wanted ids below `below`, and the id to go on below; None: there are no more.

    Source and sieve must see one moment (`snapshot`).
    """
    found: list[UUID] = []
    window = limit + 1
    for _ in range(_ROUNDS):
        seen = await source(below, window)
        found += await sieve(seen, limit + 1 - len(found)) if seen else []
        if len(found) > limit:
            return found[:limit], found[limit - 1]
        if len(seen) < window:
            return found, None
        below = seen[-1]
        window = max(window, min(window * _GROWTH, max_window))
    return found, below
