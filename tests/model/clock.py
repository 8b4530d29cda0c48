"""Time of an episode: the database's clock and that of the processes run on, and are moved together."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timedelta

from services.core.store.database import Database

_INSTALL = """
create table public.model_clock (ahead_ms bigint not null);
insert into public.model_clock values (0);
create or replace function rt.now() returns timestamptz language sql volatile parallel safe as $$
    select clock_timestamp() + ahead_ms * interval '1 millisecond' from public.model_clock
$$;
"""


class MovedClock:
    """The clock of a process: the machine's, and `ahead_ms` on the wall. Its monotonic clock can be made to skip."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._skipped_s = 0.0

    def unix_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def monotonic(self) -> float:
        """Seconds of the machine's monotonic clock, with those that were skipped."""
        return time.monotonic() + self._skipped_s

    def skip(self, seconds: float) -> None:
        """So much passes for whoever measures how long something takes."""
        self._skipped_s += seconds


class Time:
    """Moves the database's clock and all clocks of processes."""

    def __init__(self, database: Database, clocks: Collection[MovedClock]) -> None:
        self._database = database
        self._clocks = clocks
        self._moved: list[tuple[datetime, int]] = []

    async def install(self) -> None:
        """Let the database's clock be moved; it is where the machine's is."""
        async with self._database.connection() as connection:
            if await connection.fetchval("select to_regclass('public.model_clock')") is None:
                await connection.execute(_INSTALL)
            await connection.execute("update public.model_clock set ahead_ms = 0")

    async def move(self, ms: int, living: Collection[int]) -> None:
        """So many milliseconds pass. `living` owners have beaten all the while."""
        async with self._database.transaction() as connection:
            now = await connection.fetchval("select rt.now()")
            await connection.execute("update public.model_clock set ahead_ms = ahead_ms + $1", ms)
            beat = "update rt.owner set beat_at = beat_at + $2 * interval '1 ms' where id = any ($1)"
            await connection.execute(beat, list(living), ms)
            self._moved.append((now, ms))
        for clock in self._clocks:
            clock.ahead_ms += ms

    def moved_ms(self, since: datetime, within: timedelta) -> int:
        """By how much it was moved by moves that began within so much of its own time."""
        return sum(ms for at, ms in self._moved if since <= at <= since + within)

    def just_moved_ms(self, until: datetime, within: timedelta) -> int:
        """By how much it was moved by moves that had ended by then, so much of its own time before at most."""
        ends = [(at + timedelta(milliseconds=ms), ms) for at, ms in self._moved]
        return sum(ms for ended, ms in ends if until - within <= ended <= until)
