"""Makes a failing plan small: leaves operations out for as long as the episode still fails.

Episodes are random only in when things meet, so one that fails does not fail each time: it is played more than once
before it counts as passed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tests.model.plan import Plan

Play = Callable[[Plan], Awaitable[list[str]]]

_TRIES = 2
_MOST_PLAYS = 40


async def shrink(plan: Plan, faults: list[str], play: Play) -> tuple[Plan, list[str], Sequence[int]]:
    """The smallest plan found that fails, what was wrong then, and the numbers of its operations in the plan given."""
    kept = list(range(plan.size))
    plays = 0

    async def fails(some: Sequence[int]) -> list[str]:
        nonlocal plays
        for _ in range(_TRIES):
            plays += 1
            found = await play(plan.only(set(some)))
            if found:
                return found
        return []

    share = len(kept) // 2
    while share >= 1 and plays < _MOST_PLAYS:
        place = 0
        while place < len(kept) and plays < _MOST_PLAYS:
            some = kept[:place] + kept[place + share :]
            found = await fails(some) if some else []
            if found:
                kept, faults = some, found
            else:
                place += share
        share //= 2
    return plan.only(set(kept)), faults, kept
