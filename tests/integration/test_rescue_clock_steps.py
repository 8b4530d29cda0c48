"""Rescue while the database's clock is set: no step makes a living owner look dead, and none keeps a dead one alive
(rulings C19, C21).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from services.core.domain.run import Status
from services.core.engine.hints import Hints
from services.core.runtime.settings import LeaseSettings
from services.scheduler.duties.rescue import Rescue
from tests.support.live_rows import LiveRows, Recorder
from tests.support.still_clock import StillClock, still_clock
from tests.support.turned_clock import TurnedClock

__all__ = ["still_clock"]

TTL = LeaseSettings(ttl_s=30.0, heartbeat_s=3.0)
BEAT_S = 3.0
HOUR_MS = 3_600_000
STEPS = [HOUR_MS, 31_000, -31_000, -HOUR_MS]


class Watched:
    """A scheduler's rescue that looks every second of a clock that only the test turns."""

    def __init__(self, rows: LiveRows, recorder: Recorder) -> None:
        self._clock = TurnedClock()
        self.rescue = Rescue(rows.database, Hints(recorder), self._clock, TTL, lambda: None)

    async def look(self) -> int:
        """How many are buried now."""
        return (await self.rescue.run_once())["buried"]

    async def look_for(self, seconds: int) -> int | None:
        """After how many seconds, of so many at most, somebody is buried; None: nobody is."""
        for second in range(1, seconds + 1):
            self._clock.ahead_s += 1.0
            if await self.look():
                return second
        return None


@pytest.fixture
def watched(rows: LiveRows, recorder: Recorder) -> Watched:
    return Watched(rows, recorder)


@asynccontextmanager
async def living(rows: LiveRows, dsn: str) -> AsyncIterator[int]:
    """An owner with its database session, as `Owner` has it."""
    owner = await rows.owner()
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("select pg_try_advisory_lock($1)", owner)
        yield owner
    finally:
        await connection.close()


@pytest.mark.parametrize("step_ms", STEPS)
async def test_c19_c21_an_owner_that_goes_on_beating_lives_through_every_step(
    rows: LiveRows, watched: Watched, still_clock: StillClock, postgres_url: str, step_ms: int
) -> None:
    await still_clock.step(0)
    async with living(rows, postgres_url) as owner:
        run = await rows.held(owner)
        assert await watched.look() == 0
        await still_clock.step(step_ms)
        assert await watched.look() == 0
        for _ in range(15):
            assert await watched.look_for(int(BEAT_S)) is None
            assert await rows.value("select rt.beat_v1($1)", owner)
        assert await rows.status(run) is Status.RUNNING


@pytest.mark.parametrize("step_ms", STEPS)
async def test_c19_c21_a_scheduler_that_begins_at_the_step_gives_owners_the_time_to_beat(
    rows: LiveRows, watched: Watched, still_clock: StillClock, postgres_url: str, step_ms: int
) -> None:
    await still_clock.step(0)
    async with living(rows, postgres_url) as owner:
        run = await rows.held(owner)
        await still_clock.step(step_ms)
        assert await watched.look() == 0
        assert await watched.look_for(int(BEAT_S)) is None
        assert await rows.value("select rt.beat_v1($1)", owner)
        assert await watched.look() == 0
        assert await rows.status(run) is Status.RUNNING


@pytest.mark.parametrize("step_ms", [0, *STEPS])
async def test_c19_c21_an_owner_that_stands_still_is_dead_after_the_ttl_whatever_the_step(
    rows: LiveRows, watched: Watched, still_clock: StillClock, postgres_url: str, step_ms: int
) -> None:
    await still_clock.step(0)
    async with living(rows, postgres_url) as owner:
        run = await rows.held(owner)
        assert await watched.look() == 0
        await still_clock.step(step_ms)
        after = await watched.look_for(60)
        assert after is not None
        # A clock that says so too makes sooner sure, never before an owner would have beaten three times.
        assert (10 <= after <= 30) if step_ms > 0 else after in (30, 31)
        assert await rows.status(run) is Status.QUEUED
        assert not await rows.value("select rt.beat_v1($1)", owner)


@pytest.mark.parametrize("step_ms", STEPS)
async def test_c19_c21_an_owner_whose_session_is_gone_is_dead_after_seconds_whatever_the_step(
    rows: LiveRows, watched: Watched, still_clock: StillClock, step_ms: int
) -> None:
    await still_clock.step(0)
    run = await rows.held(await rows.owner())
    assert await watched.look() == 0
    await still_clock.step(step_ms)
    after = await watched.look_for(10)
    assert after is not None
    assert after <= 3
    assert await rows.status(run) is Status.QUEUED
