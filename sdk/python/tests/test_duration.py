"""Durations and times (protocol section 5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runr_workflows.duration import MAX_MS, parse_duration, time_field

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


@given(st.lists(st.sampled_from(list(UNITS)), min_size=1, unique=True), st.lists(st.integers(0, 999), min_size=6))
def test_unit_strings_add_up_largest_first(units: list[str], numbers: list[int]) -> None:
    ordered = sorted(units, key=list(UNITS).index)
    parts = list(zip(ordered, numbers, strict=False))

    assert parse_duration("".join(f"{number}{unit}" for unit, number in parts)) == sum(
        number * UNITS[unit] for unit, number in parts
    )
    if len(ordered) > 1:
        with pytest.raises(ValueError, match="not a duration"):
            parse_duration("".join(f"{number}{unit}" for unit, number in reversed(parts)))


@given(st.integers(0, MAX_MS))
def test_timedeltas_and_seconds_keep_their_milliseconds(milliseconds: int) -> None:
    assert parse_duration(timedelta(milliseconds=milliseconds)) == milliseconds
    assert parse_duration(f"{milliseconds}ms") == milliseconds
    assert parse_duration(f"{milliseconds // 1000}.{milliseconds % 1000:03}") == milliseconds


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("PT1.5H", 5_400_000),
        ("P2W", 1_209_600_000),
        (1.005, 1005),
        (0.0005, 1),
        ("1.0005s", 1001),
        ("1h1.5m", 3_690_000),
    ],
)
def test_fractions_round_half_up_in_decimal(value: object, milliseconds: int) -> None:
    assert parse_duration(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "P1M",
        "1.5h30m",
        "1.h",
        ".5h",
        "1,5s",
        "1mms",
        "1e3",
        1e300,
        pytest.param(10**5000, id="huge"),
        "9" * 101,
        b"1s",
        {},
    ],
)
def test_everything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=3))), "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.5-01:00", "2026-01-01T01:00:00.500000Z"),
    ],
)
def test_times_become_utc(value: datetime | str, text: str) -> None:
    assert time_field(value, "when") == text
