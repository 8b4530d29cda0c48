"""Cron beyond the vectors: against a minute-by-minute simulation of Debian's cron, and the limits of the syntax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.core.domain.cron import CronError, Schedule, load_zone, next_fires, parse_cron

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Job:
    """An expression, and what its fields mean, said without the code under test."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    weekdays: frozenset[int]

    def matches(self, wall: datetime) -> bool:
        """Whether a local minute matches, months aside."""
        of_month, of_week = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        _, _, day, _, weekday = self.text.split()
        both = day.startswith("*") or weekday.startswith("*")
        in_day = (of_month and of_week) if both else (of_month or of_week)
        return in_day and wall.hour in self.hours and wall.minute in self.minutes

    @property
    def wildcard(self) -> bool:
        """Whether it goes on by real time."""
        minute, hour, *_ = self.text.split()
        return minute.startswith("*") or hour.startswith("*")


def fields(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """Texts of one field with the numbers they mean."""
    numbers = st.integers(low, high)
    whole = range(low, high + 1)
    return st.one_of(
        st.just(("*", frozenset(whole))),
        st.integers(1, 40).map(lambda step: (f"*/{step}", frozenset(whole[::step]))),
        st.lists(numbers, min_size=1, max_size=3).map(lambda few: (",".join(map(str, few)), frozenset(few))),
        st.tuples(numbers, st.integers(1, 9)).map(lambda f: (f"{f[0]}/{f[1]}", frozenset(range(f[0], high + 1, f[1])))),
        st.tuples(numbers, numbers).map(sorted).map(lambda f: (f"{f[0]}-{f[1]}", frozenset(range(f[0], f[1] + 1)))),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job of every month, half of them busy in the hours in which clocks change."""
    minute, hour, day = draw(fields(0, 59)), draw(fields(0, 3) | fields(0, 23)), draw(fields(1, 31))
    weekday = draw(fields(0, 6))
    if hour[0].startswith("*"):
        hour = draw(fields(0, 23))
    elif "/" in hour[0]:
        hour = (",".join(map(str, sorted(hour[1]))), hour[1])
    if "/" in weekday[0] and not weekday[0].startswith("*"):
        weekday = (",".join(map(str, sorted(weekday[1]))), weekday[1])
    return Job(f"{minute[0]} {hour[0]} {day[0]} * {weekday[0]}", minute[1], hour[1], day[1], weekday[1])


CHANGES = [
    ("UTC", "2026-02-27"),
    ("Europe/Berlin", "2026-03-28"),
    ("Europe/Berlin", "2026-10-24"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("America/Santiago", "2026-09-05"),
    ("America/Santiago", "2026-04-04"),
    ("Asia/Beirut", "2026-03-28"),
    ("Africa/Cairo", "2026-10-29"),
    ("Antarctica/Troll", "2026-03-28"),
    ("Antarctica/Troll", "2026-10-24"),
    ("Africa/Casablanca", "2024-03-09"),
    ("America/St_Johns", "2006-10-28"),
    ("America/Havana", "2026-11-01"),
    ("Asia/Kathmandu", "1985-12-31"),
    ("Asia/Pyongyang", "2018-05-04"),
    ("Pacific/Apia", "2011-12-29"),
    ("Pacific/Kwajalein", "1993-08-20"),
]
"""Zones, and a day shortly before their clocks change: gaps and folds of 30 minutes to a day, also around midnight."""


@settings(max_examples=150, deadline=None)
@given(jobs(), st.sampled_from(CHANGES), st.integers(0, 2 * 86_400))
@example(
    Job("30 0,23 * * *", frozenset((30,)), frozenset((0, 23)), frozenset(range(32)), frozenset(range(7))),
    CHANGES[13],
    0,
)
@example(
    Job("30 10 * * *", frozenset((30,)), frozenset((10,)), frozenset(range(32)), frozenset(range(7))), CHANGES[17], 0
)
@example(
    Job("* 0-1 */3 * *", frozenset(range(60)), frozenset((0, 1)), frozenset(range(1, 32, 3)), frozenset(range(7))),
    CHANGES[3],
    0,
)
def test_fires_as_a_simulation_of_debians_cron_does(job: Job, change: tuple[str, str], start_s: int) -> None:
    zone, day = change
    after = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(seconds=start_s)
    end = after + timedelta(days=2)
    wanted = list(_simulated(job, load_zone(zone), after, end))

    found = next_fires(parse_cron(job.text, zone), after, len(wanted) + 1)

    assert found[: len(wanted)] == wanted
    assert all(fire > end for fire in found[len(wanted) :])


def _simulated(job: Job, zone: ZoneInfo, after: datetime, end: datetime) -> Iterator[datetime]:
    """Each minute of real time, beginning a day and a half before, with a memory of the local minutes that were."""
    begin = after.replace(second=0) - timedelta(hours=36)
    seen: set[datetime] = set()
    last = begin.astimezone(zone).replace(tzinfo=None) - MINUTE
    for count in range((end - begin) // MINUTE + 1):
        instant = begin + count * MINUTE
        wall = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        skipped = [last + MINUTE * n for n in range(1, max((wall - last) // MINUTE, 1))]
        if job.wildcard:
            fires = job.matches(wall)
        else:
            fires = (job.matches(wall) and wall not in seen) or any(map(job.matches, skipped))
        seen.update((wall, *skipped))
        last = wall
        if fires and after < instant <= end:
            yield instant


@settings(max_examples=60, deadline=None)
@given(jobs(), st.sampled_from(CHANGES), st.integers(0, 10**8))
def test_instants_increase_and_do_not_depend_on_where_one_starts(
    job: Job, change: tuple[str, str], back_s: int
) -> None:
    schedule = parse_cron(job.text, change[0])
    after = datetime.fromisoformat(change[1]).replace(tzinfo=UTC) - timedelta(seconds=back_s)

    fires = next_fires(schedule, after, 6)

    assert len(fires) == 6
    assert all(one < other for one, other in zip([after, *fires], fires, strict=False))
    assert next_fires(schedule, fires[2], 3) == fires[3:]
    assert next_fires(schedule, fires[2] - timedelta(microseconds=1), 1) == [fires[2]]


@pytest.mark.parametrize(
    ("expression", "alike"),
    [
        ("0 0 * * 7", "0 0 * * SUN"),
        ("0 0 * * 0-7", "0 0 * * *,1"),
        ("0 0 * * fri-7", "0 0 * * 5,6,0"),
        ("0 0 1 jan,Feb,MAR *", "0 0 1 1-3 *"),
        ("\t 00  009\t* * * ", "0 9 * * *"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("0-30/15 1 * * *", "0,15,30 1 * * *"),
        ("0 0 * * MON-FRI/2", "0 0 * * 1,3,5"),
        ("0 0 * 10/1 *", "0 0 * 10,11,12 *"),
        ("*/90 * * * *", "*/60 * * * *"),
        ("0 0 L,L,31 * *", "0 0 31,L * *"),
    ],
)
def test_ways_to_say_the_same(expression: str, alike: str) -> None:
    one, other = parse_cron(expression), parse_cron(alike)

    for field in ("minutes", "hours", "days", "last_day", "months", "weekdays"):
        assert getattr(one, field) == getattr(other, field)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "five fields"),
        ("0 0 9 * * *", "five fields"),
        ("0 9 * * *\n", "'*\\n'"),
        ("0 9 * * *\u00a0", "is none of"),
        ("@hourly", "macros"),
        ("60 * * * *", "is not 0-59"),
        ("* 24 * * *", "is not 0-23"),
        ("* * 0 * *", "is not 1-31"),
        ("* * * * 8", "is not 0-7"),
        ("* * * * SAT-SUN", "backwards"),
        ("* * * DEC-JAN *", "backwards"),
        ("MON * * * *", "is not 0-59"),
        ("* * * MON *", "is not 1-12"),
        ("*/0 * * * *", "at least 1"),
        ("*/ * * * *", "is none of"),
        ("/5 * * * *", "is none of"),
        ("*5 * * * *", "is none of"),
        ("*-5 * * * *", "is none of"),
        ("1/2/3 * * * *", "is none of"),
        ("1,,2 * * * *", "is none of"),
        ("-5 * * * *", "is none of"),
        ("+5 * * * *", "is none of"),
        ("0 0 L-3 * *", "is not 1-31"),
        ("0 0 l * *", "is not 1-31"),
        ("0 0 L, * *", "is none of"),
        ("0 0 L/2 * *", "is not 1-31"),
        ("0 0 * * L", "is not 0-7"),
        ("0 L * * *", "is not 0-23"),
        ("0 0 31 2-2 */2", "never fires"),
        ("0 0 31 APR,JUN,SEP,NOV *", "never fires"),
        ("0 0 30,31 2 *", "never fires"),
        ("9" * 30 + " * * * *", "is not 0-59"),
        ("0," * 600 + "0 * * * *", "at most 1000"),
    ],
)
def test_refusals_say_which_field_and_why(expression: str, words: str) -> None:
    with pytest.raises(CronError) as refused:
        parse_cron(expression)

    assert words in refused.value.message
    assert refused.value.field == "cron"


@pytest.mark.parametrize(
    "zone", ["", " UTC", "utc", "EUROPE/BERLIN", "Europe/Nowhere", "../etc/passwd", "UTC+3", "+03:00"]
)
def test_refused_zones(zone: str) -> None:
    with pytest.raises(CronError) as refused:
        parse_cron("* * * * *", zone)

    assert refused.value.field == "timezone"


@pytest.mark.parametrize("zone", [3, True, ["UTC"], {}, "Factory", "localtime", "posixrules", "Europe", "zone.tab"])
def test_what_is_no_zone_at_all(zone: object) -> None:
    with pytest.raises(CronError):
        parse_cron("* * * * *", zone)


def test_dates_that_come_rarely_are_found() -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC)

    assert [fire.year for fire in next_fires(parse_cron("0 12 29 2 *"), after, 3)] == [2028, 2032, 2036]
    sundays = next_fires(parse_cron("0 0 29 2 */7"), after, 3)
    assert [(fire.year, fire.isoweekday()) for fire in sundays] == [(2032, 7), (2060, 7), (2088, 7)]
    assert next_fires(parse_cron("0 0 30 2 1"), after, 1) == [datetime(2026, 2, 2, tzinfo=UTC)]


def test_the_end_of_the_calendar_ends_the_list() -> None:
    daily = parse_cron("0 12 * * *", "Pacific/Auckland")

    assert len(next_fires(daily, datetime(9998, 12, 1, tzinfo=UTC), 100)) < 100
    assert next_fires(daily, datetime.max.replace(tzinfo=UTC), 1) == []


def test_a_naive_instant_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="aware"):
        next_fires(parse_cron("* * * * *"), datetime(2026, 1, 1), 1)  # noqa: DTZ001


def test_a_schedule_knows_its_zone() -> None:
    schedule = parse_cron("0 9 * * *")

    assert isinstance(schedule, Schedule)
    assert schedule.timezone == "UTC"
    assert parse_cron("0 9 * * *", "Europe/Istanbul").timezone == "Europe/Istanbul"
