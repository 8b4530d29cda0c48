"""What time Postgres has, estimated: good for deciding when to look and for stamping ids, never for deciding what is
due (rulings C21).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.health import Health
from services.core.runtime.lifecycle import Component
from services.core.store.database import Database
from services.core.store.queries import queries

log = logging.getLogger(__name__)

_KEPT = 8
_MAX_AGE_S = 60.0
_DRIFT_MS = 0.5  # what two clocks may drift apart between samples
_SAMPLE_S = 5.0
_SKEW_MS = 250


class _Sample(NamedTuple):
    round_trip_s: float
    taken_s: float
    offset_ms: float


class DatabaseClock:
    """A `Clock` whose wall is Postgres's, over the own monotonic one. Of the last samples the one with the shortest
    round trip counts, until a newer one shows that Postgres's clock was set.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._best: _Sample | None = None

    async def sample(self, connection: asyncpg.Connection) -> None:
        """Ask Postgres for the time over an idle connection. Raises what the driver raises."""
        before = self._clock.monotonic()
        theirs_ms = await connection.fetchval(queries("scheduler")["now_ms"])
        after = self._clock.monotonic()
        while self._samples and self._samples[0].taken_s < after - _MAX_AGE_S:
            self._samples.popleft()
        middle_ms = (before + after) / 2 * 1_000
        fresh = _Sample(after - before, after, theirs_ms - middle_ms)
        self._samples = deque((old for old in self._samples if _agree(old, fresh)), maxlen=_KEPT)
        self._samples.append(fresh)
        self._best = min(self._samples)

    @property
    def known(self) -> bool:
        """Whether there is any sample."""
        return bool(self._samples)

    def unix_ms(self) -> int:
        """The estimate, unix milliseconds; this machine's own clock before the first sample."""
        return int(self._estimate_ms())

    def monotonic(self) -> float:
        """Seconds of this machine's monotonic clock."""
        return self._clock.monotonic()

    def certain_ms(self) -> float:
        """What it shows at least: the estimate less its error, so that who looks then does not look too early."""
        error_s = 0.0 if self._best is None else self._best.round_trip_s / 2
        return self._estimate_ms() - error_s * 1_000 - _DRIFT_MS

    def skew_ms(self) -> float:
        """How far Postgres's clock is ahead of this machine's."""
        return self._estimate_ms() - self._clock.unix_ms()

    def _estimate_ms(self) -> float:
        if self._best is None:
            return float(self._clock.unix_ms())
        return self._clock.monotonic() * 1_000 + self._best.offset_ms


def _agree(one: _Sample, other: _Sample) -> bool:
    """Whether both can be right: each is off by half its round trip at most."""
    error_ms = (one.round_trip_s + other.round_trip_s) / 2 * 1_000
    return abs(one.offset_ms - other.offset_ms) <= error_ms + _DRIFT_MS


class ClockKeeper(Component):
    """Keeps a `DatabaseClock` near Postgres's, and tells when this machine's own clock is away from it.

    That is no reason not to be ready: the own clock decides nothing here, it only stamps logs, spans and signatures.
    """

    name = "database-clock"

    def __init__(self, database: Database, theirs: DatabaseClock, health: Health) -> None:
        self._database = database
        self._theirs = theirs
        self._is_away = False
        health.observe("clock", self._state)

    async def start(self) -> None:
        """See `Component.start`: the first ids are stamped by Postgres's clock already."""
        await self._sample()

    async def run(self) -> None:
        """Sample until cancelled, over every absence of the database."""
        while True:
            await asyncio.sleep(_SAMPLE_S)
            await self._sample()

    async def _sample(self) -> None:
        try:
            async with self._database.connection() as connection:
                await self._theirs.sample(connection)
        except Unavailable:
            return
        is_away = abs(self._theirs.skew_ms()) > _SKEW_MS
        if is_away and not self._is_away:
            log.warning(
                "this machine's clock is not the database's", extra={"ahead_ms": -round(self._theirs.skew_ms())}
            )
        self._is_away = is_away

    def _state(self) -> str:
        return f"{-round(self._theirs.skew_ms())} ms ahead of the database's" if self._theirs.known else "unknown"
