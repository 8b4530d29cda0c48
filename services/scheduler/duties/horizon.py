"""When timers of the next minute are due, in memory: instants, not runs, so a million timers of one instant are one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

HORIZON_MS = 60_000
MAX_INSTANTS = 50_000


class Horizon:
    """A heap of (due, partition), unix milliseconds. It only says when to look; the database says what is due."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._known: set[tuple[int, int]] = set()
        self.until_ms = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """The nearest instant."""
        return self._heap[0][0] if self._heap else None

    def replace(self, instants: Iterable[tuple[int, int]], until_ms: float) -> None:
        """Hold these (due, partition), which are all there are up to `until_ms`.

        What is held already and nearer than that stays: it may have been hinted while the instants were read.
        """
        kept = (instant for instant in self._heap if instant[0] <= until_ms)
        self._known = {*instants, *kept}
        self._heap = sorted(self._known)
        self.until_ms = until_ms

    def add(self, due_ms: int, part: int) -> bool:
        """Hold one more; whether it is the nearest now. One past the horizon is left to the next read."""
        instant = (due_ms, part)
        if due_ms > self.until_ms or instant in self._known or len(self._heap) >= MAX_INSTANTS:
            return False
        self._known.add(instant)
        heapq.heappush(self._heap, instant)
        return self._heap[0] == instant

    def take_due(self, now_ms: float) -> set[int]:
        """Remove what is due; the partitions to look at."""
        parts: set[int] = set()
        while self._heap and self._heap[0][0] <= now_ms:
            instant = heapq.heappop(self._heap)
            self._known.discard(instant)
            parts.add(instant[1])
        return parts
