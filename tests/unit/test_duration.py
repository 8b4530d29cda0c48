"""Durations and times beyond the vectors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.duration import MAX_MS, DurationError, format_duration, parse_duration, parse_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(0, MAX_MS))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(st.decimals(0, 10**6, places=6, allow_nan=False))
def test_seconds_round_half_up_in_decimal(seconds: Decimal) -> None:
    milliseconds = int((seconds * 1000).quantize(Decimal(1), ROUND_HALF_UP))

    for written in (f"{seconds:f}", f"{seconds:f}s", f"PT{seconds:f}S", f"PT{seconds:f}S".replace(".", ",")):
        assert parse_duration(written) == milliseconds


@given(st.floats(0, 1e6))
def test_a_number_counts_as_the_decimal_it_is_written_as(seconds: float) -> None:
    assert parse_duration(seconds) == int((Decimal(repr(seconds)) * 1000).quantize(Decimal(1), ROUND_HALF_UP))


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [("1h1.5m", 3_690_000), ("1.5ms", 2), ("1m5ms", 60_005), ("P2W", 1_209_600_000), ("P1DT0.5S", 86_400_500)],
)
def test_a_fraction_on_the_last_part(value: str, milliseconds: int) -> None:
    assert parse_duration(value) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        "1.5h1m",
        "P1.5DT1H",
        "P1DT",
        "P",
        "1.",
        ".5",
        "1..5s",
        "+1s",
        "−1s",
        "1s1m",
        "1ms1s",
        "1mms",
        "0x5",
        "P1Y",
        "P1M2D",
        "PT1H\n",
        "1h ",
        "\t1h",
        "1H",
        "1e3",
        "1_0",
        "1 h",
        "P-1D",
        "1w1",
        "1" * 200 + "s",
        "1000000000000001ms",
    ],
)
def test_refused_texts(value: str) -> None:
    with pytest.raises(DurationError) as refused:
        parse_duration(value)

    assert refused.value.message


@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("inf"), True, None, {}, [], 10**400, 1e308, b"1s"])
def test_refused_values(value: object) -> None:
    with pytest.raises(DurationError):
        parse_duration(value)


@given(st.integers(-62_135_500_000_000, 253_402_200_000_000), st.integers(-23 * 60, 23 * 60))
def test_times_with_any_offset(milliseconds: int, offset: int) -> None:
    moment = (EPOCH + timedelta(milliseconds=milliseconds)).astimezone(timezone(timedelta(minutes=offset)))

    assert parse_time(moment.isoformat()) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-10-10T09:00:00Z", 1_791_622_800_000),
        ("2026-10-10T09:00:00", 1_791_622_800_000),
        ("2026-10-10T12:00+03:00", 1_791_622_800_000),
        ("2026-10-10T09:00:00.0005Z", 1_791_622_800_001),
        ("2026-10-10", 1_791_590_400_000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30T00:00:00Z",
        "2026-10-10T24:00:00Z",
        "2026-10-10 09:00:00",
        "2026-10-10T09:00:00+25:00",
        "10m",
        "now",
        "",
        "2026-10-10T09:00:00Z\n",
        "2026-10-10T09:00:60Z",
        "٢٠٢٦-10-10",
        "20261010T090000Z",
    ],
)
def test_refused_times(text: str) -> None:
    with pytest.raises(DurationError):
        parse_time(text)


def test_a_number_is_no_time() -> None:
    with pytest.raises(DurationError):
        parse_time(1_791_622_800_000)
