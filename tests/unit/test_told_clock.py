"""The database's time as the gateway is told it."""

from __future__ import annotations

from services.gateway.submit.told_clock import ToldClock
from tests.support.engine import HandClock


def test_before_it_is_told_it_shows_its_own_and_then_the_databases_over_its_own_monotonic_one() -> None:
    own = HandClock()
    told = ToldClock(own)
    assert told.unix_ms() == own.unix_ms()
    told.learn(5_000_000)
    assert told.unix_ms() == 5_000_000
    own.seconds += 2.5
    assert (told.unix_ms(), told.monotonic()) == (5_002_500, own.seconds)


def test_what_was_long_on_its_way_does_not_set_it_back() -> None:
    own = HandClock()
    told = ToldClock(own)
    told.learn(5_000_000)
    own.seconds += 1
    told.learn(5_000_400)  # 600 ms on its way
    assert told.unix_ms() == 5_001_000
    own.seconds += 1
    told.learn(5_002_300)  # the first was late as well
    assert told.unix_ms() == 5_002_300


def test_c21_it_is_set_back_and_ahead_with_the_databases_clock_at_once() -> None:
    told = ToldClock(HandClock())
    for now_ms in (5_000_000, 5_000_000 - 60_000, 5_000_000, 5_000_000 + 3_600_000, 1_000_000):
        told.learn(now_ms)
        assert told.unix_ms() == now_ms
