"""How an executor's slots are shared among tenants (rulings P8).

The rule: a tenant may take another slot while it holds fewer than seven times as many as are free. So one tenant alone
gets to seven eighths, two to seven fifteenths each, and there is always room for whoever comes next: nobody waits for
the end of others' calls, which may take minutes. Those that wait are served in the order of how little they hold, and
equals in turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

_TIMES = 7
_MOST_SERVED = 4_096


def more(held: int, free: int) -> int:
    """How many more slots of `free` ones a tenant may take that holds so many, if nobody else takes any."""
    return max(0, -((held - _TIMES * free) // (1 + _TIMES)))


def even_share(size: int, tenants: int) -> int:
    """What each of so many tenants holds of `size` slots when each has taken all that it may; at least 1."""
    return max(1, _TIMES * size // (1 + _TIMES * tenants))


def shares(held: Mapping[int, int], waiting: Sequence[int], free: int, most: int) -> dict[int, int]:
    """How many of `free` slots, and not more than `most`, each waiting tenant may take. Who comes first in `waiting` is
    preferred among equals.
    """
    line = [(held.get(tenant, 0), place, tenant) for place, tenant in enumerate(waiting)]
    heapq.heapify(line)
    found: dict[int, int] = {}
    while line and most > 0:
        has, place, tenant = line[0]
        if has >= _TIMES * free:
            break  # who holds least may not take another: nobody may
        heapq.heapreplace(line, (has + 1, place, tenant))
        found[tenant] = found.get(tenant, 0) + 1
        free -= 1
        most -= 1
    return found


def excess(held: Mapping[int, int], waiting: Iterable[int], size: int, coming: int) -> dict[int, int]:
    """How many runs of each tenant should make room for the tenants in `waiting`, to which everything that they may
    take was given and who want more. So many were asked before and are `coming`. Nobody goes below its even share.
    """
    wanting = set(waiting)
    even = even_share(size, len(wanting | held.keys()))
    wanted = sum(max(0, even - held.get(tenant, 0)) for tenant in wanting) - coming
    found: dict[int, int] = {}
    for tenant, has in sorted(held.items(), key=lambda each: -each[1]):
        some = min(has - even, wanted)
        if some <= 0:
            break
        found[tenant] = some
        wanted -= some
    return found


class Turns:
    """Which of the tenants that wait come first among equals: those that were served longest ago."""

    def __init__(self) -> None:
        self._served: dict[int, int] = {}
        self._last = 0

    def order(self, waiting: Iterable[int]) -> list[int]:
        """In the order of their turns."""
        return sorted(waiting, key=lambda tenant: self._served.get(tenant, 0))

    def served(self, tenants: Iterable[int]) -> None:
        """These have got something."""
        self._last += 1
        for tenant in tenants:
            self._served.pop(tenant, None)
            self._served[tenant] = self._last
        while len(self._served) > _MOST_SERVED:
            del self._served[next(iter(self._served))]
