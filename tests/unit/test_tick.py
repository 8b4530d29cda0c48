"""Which due ticks start runs, and what a run is told."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.domain.cron import Schedule, latest_fires, next_fires, parse_cron
from services.core.domain.tick import instant_text, next_tick, tick_data, ticks_between, ticks_to_fire

EXPRESSIONS = ("* * * * *", "*/7 * * * *", "0 9 * * *", "30 2 * * *", "0 0 29 2 *", "* * * 1 *", "15 */6 1,15 * 1")
ZONES = ("UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe")
CROWD = 5_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

schedules = st.builds(parse_cron, st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES))


def one_by_one(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    """The fires after an instant up to another, or the first of a crowd."""
    fires: list[datetime] = []
    while len(fires) < CROWD and (found := next_fires(schedule, fires[-1] if fires else after, 1)):
        if found[0] > until:
            break
        fires += found
    return fires


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@settings(max_examples=150, deadline=None)
@given(
    schedule=schedules,
    start=st.integers(0, 400 * 86_400_000),
    span=st.integers(0, 4 * 86_400_000) | st.integers(0, 400 * 86_400_000),
    most=st.sampled_from([1, 2, 100]),
)
def test_the_latest_of_the_due_are_what_counting_through_all_gives(
    schedule: Schedule, start: int, span: int, most: int
) -> None:
    (first,) = next_fires(schedule, BEGIN + timedelta(milliseconds=start), 1)
    due = [first, *one_by_one(schedule, first, first + timedelta(milliseconds=span))]
    until = due[-1] if len(due) >= CROWD else first + timedelta(milliseconds=span)
    assert latest_fires(schedule, first, until, most) == due[-most:]


@settings(max_examples=100, deadline=None)
@given(schedule=schedules, start=st.integers(0, 400 * 86_400_000), span=st.integers(0, 3 * 86_400_000))
def test_the_ticks_of_a_range_begin_at_its_start_and_end_before_its_end(
    schedule: Schedule, start: int, span: int
) -> None:
    since = BEGIN + timedelta(milliseconds=start)
    until = since + timedelta(milliseconds=span)
    expected = [fire for fire in one_by_one(schedule, since - timedelta(minutes=2), until) if since <= fire < until]
    assert ticks_between(schedule, since, until, CROWD) == expected
    assert ticks_between(schedule, since, until, 3) == expected[:4]


def test_a_crowd_long_ago_is_not_counted_through() -> None:
    schedule = parse_cron("* * * 1 *")
    first, now = at("2020-01-01T00:00:00Z"), at("2026-12-31T00:00:00Z")
    assert latest_fires(schedule, first, now, 2) == [at("2026-01-31T23:58:00Z"), at("2026-01-31T23:59:00Z")]


@pytest.mark.parametrize(
    ("catch_up", "late", "fires"),
    [
        ("latest", timedelta(0), True),
        ("latest", timedelta(hours=24), True),
        ("latest", timedelta(hours=24, milliseconds=1), False),
        ("none", timedelta(0), True),
        ("none", timedelta(seconds=59, milliseconds=999), True),
        ("none", timedelta(minutes=1), False),
        ("all", timedelta(days=300), True),
    ],
)
def test_one_tick_that_is_late(catch_up: str, late: timedelta, fires: bool) -> None:
    tick = at("2026-02-01T09:00:00Z")
    assert ticks_to_fire(parse_cron("0 9 1 2 *"), tick, tick + late, catch_up) == ([tick] if fires else [])


def test_the_next_tick_is_after_the_instant() -> None:
    schedule = parse_cron("0 9 * * *")
    assert next_tick(schedule, at("2026-06-05T09:00:00Z")) == at("2026-06-06T09:00:00Z")
    assert next_tick(schedule, at("2026-06-05T08:59:59.999Z")) == at("2026-06-05T09:00:00Z")


def test_the_data_of_the_event() -> None:
    data = tick_data(cron="0 9 * * *", timezone="UTC", scheduled_at=at("2026-06-05T09:00:00Z"), trigger=2)
    assert json.loads(data) == {
        "cron": "0 9 * * *",
        "timezone": "UTC",
        "scheduled_at": "2026-06-05T09:00:00Z",
        "trigger": 2,
    }


def test_instants_are_text_in_utc() -> None:
    assert instant_text(at("2026-06-05T11:00:00+02:00")) == "2026-06-05T09:00:00Z"
    assert instant_text(at("2026-06-05T09:00:00.123456Z")) == "2026-06-05T09:00:00.123Z"
