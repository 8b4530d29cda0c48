"""The database's time, as ingest tells it: ids that the gateway makes are stamped by it (rulings C21)."""

from __future__ import annotations

from collections import deque

from services.core.runtime.clock import Clock

_KEPT = 8
_SET_BACK_MS = 1_000
"""What is told takes less than so long on its way; ids may be off by much more."""


class ToldClock:
    """A `Clock` whose wall is the database's. What is told is late by its way here, so of the last few times that were
    told the one that is furthest ahead counts, until the database's clock is seen to have been set back.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offsets: deque[float] = deque(maxlen=_KEPT)
        self._ahead: float | None = None

    def learn(self, now_ms: int) -> None:
        """Ingest has said what time it is."""
        offset = now_ms - self._clock.monotonic() * 1_000
        if self._ahead is not None and offset < self._ahead - _SET_BACK_MS:
            self._offsets.clear()
        self._offsets.append(offset)
        self._ahead = max(self._offsets)

    def unix_ms(self) -> int:
        """Unix milliseconds; by this machine's own clock before the first time was told."""
        if self._ahead is None:
            return self._clock.unix_ms()
        return int(self._clock.monotonic() * 1_000 + self._ahead)

    def monotonic(self) -> float:
        """Seconds of this machine's monotonic clock."""
        return self._clock.monotonic()
