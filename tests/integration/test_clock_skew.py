"""Processes whose clocks are not the database's: what they start, send and wait for means the same (rulings C21)."""

from __future__ import annotations

from uuid import UUID

import pytest

from services.core.domain.op import Sleep, WaitForEvent
from services.core.domain.run import Status
from services.core.engine.hints import Hints
from services.core.engine.look_back import LookBack
from services.core.runtime.clock import SystemClock
from services.core.runtime.health import Health
from services.core.store.database_clock import ClockKeeper, DatabaseClock
from tests.support.hand import ALL_PARTS, Hand
from tests.support.live_rows import LiveRows, Recorder
from tests.support.still_clock import StillClock, still_clock

__all__ = ["still_clock"]

HOUR_MS = 3_600_000
AHEAD = pytest.mark.parametrize("ahead_ms", [-HOUR_MS, -60_000, -4_000, 0, 4_000, 60_000, HOUR_MS])
"""How far the database's clock is ahead of that of all processes."""


@pytest.fixture
def look_back(rows: LiveRows, recorder: Recorder) -> LookBack:
    return LookBack(rows.database, Hints(recorder))


async def wait_and_look(hand: Hand, rows: LiveRows, look_back: LookBack, run: UUID, ms: int) -> UUID | None:
    """Let the run wait for `paid`, looking back for `ms`; the event that resumed it at once."""
    step = WaitForEvent(id="w", name="w", event="paid", timeout_ms=HOUR_MS, lookback_ms=ms)
    assert await hand.answer(run, step) is Status.WAITING
    await look_back.arm(await rows.value("select id from rt.wait where run = $1 and kind = 'e'", run))
    event: UUID | None = await rows.value("select event from rt.steps where run = $1 and sid = 'w'", run)
    return event


async def now_ms(rows: LiveRows) -> int:
    """What the database's clock shows."""
    shown: int = await rows.value("select rt.ms(rt.now())")
    return shown


async def fired(rows: LiveRows) -> int:
    """How many timers fire now."""
    count: int = await rows.value("select fired from rt.fire_v1($1, 500)", ALL_PARTS)
    return count


@AHEAD
@pytest.mark.parametrize("lookback_ms", [-1, 2_000], ids=["since the run was created", "for a time"])
async def test_c8_c21_an_event_that_came_within_the_look_back_is_found(
    hand: Hand, rows: LiveRows, look_back: LookBack, still_clock: StillClock, ahead_ms: int, lookback_ms: int
) -> None:
    await still_clock.step(ahead_ms)
    run = await hand.start("work")
    event = await hand.send("paid")
    assert await wait_and_look(hand, rows, look_back, run, lookback_ms) == event.id


@AHEAD
@pytest.mark.parametrize("lookback_ms", [-1, 2_000], ids=["since the run was created", "for a time"])
async def test_c8_c21_an_event_that_came_before_the_look_back_begins_is_not(
    hand: Hand, rows: LiveRows, look_back: LookBack, still_clock: StillClock, ahead_ms: int, lookback_ms: int
) -> None:
    await still_clock.step(ahead_ms)
    await hand.send("paid")
    await still_clock.step(2_500)
    run = await hand.start("work")
    assert await wait_and_look(hand, rows, look_back, run, lookback_ms) is None


async def test_a_look_back_over_all_time_takes_the_oldest_event(
    hand: Hand, rows: LiveRows, look_back: LookBack
) -> None:
    first, _ = await hand.send("paid"), await hand.send("paid")
    assert await wait_and_look(hand, rows, look_back, await hand.start("work"), 10**15) == first.id


@AHEAD
async def test_c21_a_sleep_until_a_time_is_over_when_the_database_says_so(
    hand: Hand, rows: LiveRows, still_clock: StillClock, ahead_ms: int
) -> None:
    await still_clock.step(ahead_ms)
    run = await hand.start("work")
    until_ms = await now_ms(rows) + 20_000
    assert await hand.answer(run, Sleep(id="z", name="z", until_ms=until_ms)) is Status.SLEEPING
    assert await fired(rows) == 0
    await still_clock.step(21_000)
    assert await fired(rows) == 1
    assert await rows.status(run) is Status.QUEUED


@AHEAD
async def test_c21_a_sleep_until_a_time_that_has_come_is_over(
    hand: Hand, rows: LiveRows, still_clock: StillClock, ahead_ms: int
) -> None:
    await still_clock.step(ahead_ms)
    run = await hand.start("work")
    past = await now_ms(rows)
    await still_clock.step(50)
    assert await hand.answer(run, Sleep(id="a", name="a", until_ms=past)) is Status.RUNNING
    # What has come only since the run was read is known to the database alone.
    await still_clock.step(1_000)
    soon = await now_ms(rows)
    assert await hand.answer(run, Sleep(id="b", name="b", until_ms=soon)) is Status.SLEEPING
    assert await fired(rows) == 1
    assert await rows.value("select count(*) from rt.steps where run = $1 and status = 'c'", run) == 2


class Kept:
    """A keeper of the estimate, and what its readiness tells."""

    def __init__(self, rows: LiveRows) -> None:
        self.theirs = DatabaseClock(SystemClock())
        self.health = Health()
        self.keeper = ClockKeeper(rows.database, self.theirs, self.health)

    async def away_ms(self, rows: LiveRows) -> int:
        """How far the estimate is from the database's clock."""
        return abs(await now_ms(rows) - self.theirs.unix_ms())


@AHEAD
async def test_c21_the_estimate_shows_the_databases_time_from_the_start_and_decides_no_readiness(
    rows: LiveRows, still_clock: StillClock, ahead_ms: int
) -> None:
    await still_clock.step(ahead_ms)
    kept = Kept(rows)
    assert (await kept.health.readiness())[1]["clock"] == "unknown"
    await kept.keeper.start()
    assert await kept.away_ms(rows) < 1_000
    kept.health.set_started()
    ready, report = await kept.health.readiness()
    assert ready
    assert abs(int(report["clock"].split()[0]) + ahead_ms) < 1_000


@pytest.mark.parametrize("step_ms", [HOUR_MS, 2_000, -2_000, -HOUR_MS])
async def test_c21_the_estimate_follows_a_clock_that_is_set(
    rows: LiveRows, still_clock: StillClock, step_ms: int
) -> None:
    await still_clock.step(0)
    kept = Kept(rows)
    for _ in range(8):
        await kept.keeper.start()
    await still_clock.step(step_ms)
    await kept.keeper.start()
    assert await kept.away_ms(rows) < 1_000
