"""Virtual time: what is due when."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], object]


class Timers:
    """The clock, in unix milliseconds, and what it will do. Of two actions at one time the first set is the first."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._heap: list[tuple[int, bool, int, Action]] = []
        self._numbers = count()

    def at(self, ms: int, action: Action, *, first: bool = False) -> None:
        """Does it at a time, at once for one that has passed; `first`: before what is due then."""
        heappush(self._heap, (ms, not first, next(self._numbers), action))

    def next(self, until_ms: int) -> Action | None:
        """Sets the clock to the next action that is due by then, and returns it; None without one."""
        if not self._heap or self._heap[0][0] > until_ms:
            return None
        due, _, _, action = heappop(self._heap)
        self.now_ms = max(self.now_ms, due)
        return action
