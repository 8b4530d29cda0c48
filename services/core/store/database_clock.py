"""What time Postgres has, estimated: good for deciding when to look, never for deciding what is due (rulings C21)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import asyncpg

from services.core.runtime.clock import Clock
from services.core.store.queries import queries

_KEPT = 8
_MAX_AGE_S = 60.0
_DRIFT_MS = 0.5  # what two clocks may drift apart between samples


class _Sample(NamedTuple):
    round_trip_s: float
    taken_s: float
    offset_ms: float


class DatabaseClock:
    """Postgres's clock over the monotonic one. Of the last samples the one with the shortest round trip counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)

    async def sample(self, connection: asyncpg.Connection) -> None:
        """Ask Postgres for the time over an idle connection. Raises what the driver raises."""
        before = self._clock.monotonic()
        theirs_ms = await connection.fetchval(queries("scheduler")["now_ms"])
        after = self._clock.monotonic()
        while self._samples and self._samples[0].taken_s < after - _MAX_AGE_S:
            self._samples.popleft()
        middle_ms = (before + after) / 2 * 1_000
        self._samples.append(_Sample(after - before, after, theirs_ms - middle_ms))

    @property
    def known(self) -> bool:
        """Whether there is any sample."""
        return bool(self._samples)

    def unix_ms(self) -> float:
        """The estimate, unix milliseconds; this machine's own clock before the first sample."""
        if not self._samples:
            return float(self._clock.unix_ms())
        return self._clock.monotonic() * 1_000 + min(self._samples).offset_ms

    def certain_ms(self) -> float:
        """What it shows at least: the estimate less its error, so that who looks then does not look too early."""
        error_s = min(self._samples).round_trip_s / 2 if self._samples else 0.0
        return self.unix_ms() - error_s * 1_000 - _DRIFT_MS

    def skew_ms(self) -> float:
        """How far Postgres's clock is ahead of this machine's."""
        return self.unix_ms() - self._clock.unix_ms()
