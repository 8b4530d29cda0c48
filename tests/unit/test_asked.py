"""From when on a sleep lasts: what a function says about it is believed where it can be true."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.op import Op, RunCompleted, Sleep
from services.executor.asked import asked_s_ago
from tests.support.engine import HandClock

NOW_MS = 1_000_000


def clock() -> HandClock:
    return HandClock()


def sleep(asked_ms: float | None) -> tuple[Op, ...]:
    return (Sleep(id="nap", name="nap", for_ms=2_000, asked_ms=asked_ms),)


def test_it_lasts_from_when_the_function_asked() -> None:
    assert asked_s_ago(sleep(NOW_MS - 40), clock().monotonic() - 0.1, clock()) == 0.04


def test_one_that_does_not_say_lasts_from_its_answer() -> None:
    assert asked_s_ago(sleep(None), clock().monotonic() - 0.1, clock()) == 0


def test_other_answers_are_no_sleep() -> None:
    sent_s = clock().monotonic() - 0.1
    assert asked_s_ago((RunCompleted(),), sent_s, clock()) == 0
    assert asked_s_ago(sleep(NOW_MS - 40) * 2, sent_s, clock()) == 0


@given(asked_ms=st.floats(), sent_ms=st.integers(0, 100_000))
def test_whatever_a_function_says_a_sleep_is_not_shortened_by_more_than_the_answer_took(
    asked_ms: float, sent_ms: int
) -> None:
    ago_s = asked_s_ago(sleep(asked_ms), clock().monotonic() - sent_ms / 1_000, clock())
    assert 0 <= ago_s <= min(sent_ms / 1_000 + 1e-6, 0.25)


@given(ahead_ms=st.floats(1, 1e15))
def test_a_clock_that_is_ahead_says_nothing(ahead_ms: float) -> None:
    assert asked_s_ago(sleep(NOW_MS + ahead_ms), clock().monotonic() - 10, clock()) == 0


@given(behind_ms=st.floats(251, 1e12))
def test_a_clock_that_is_far_behind_says_nothing(behind_ms: float) -> None:
    assert asked_s_ago(sleep(NOW_MS - behind_ms), clock().monotonic() - 1e9, clock()) == 0
