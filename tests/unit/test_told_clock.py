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


def test_what_was_told_late_does_not_count_and_a_clock_that_was_set_back_does() -> None:
    own = HandClock()
    told = ToldClock(own)
    told.learn(5_000_000)
    own.seconds += 1
    told.learn(5_000_400)  # 600 ms on its way
    assert told.unix_ms() == 5_001_000
    for _ in range(8):
        told.learn(1_000_000)
    assert told.unix_ms() == 1_000_000
