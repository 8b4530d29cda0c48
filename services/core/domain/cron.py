"""Cron expressions: five fields in a time zone, with the rules of Debian's cron (engine section 9).

    minute (0-59)  hour (0-23)  day of month (1-31 or L)  month (1-12 or JAN-DEC)  day of week (0-7 or SUN-SAT)

A field is a list of `*`, `N`, `N-M`, each with an optional `/step`; `N/step` runs from N to the end of the range. The
two day fields combine by OR when both are restricted, by AND when one of them starts with `*`.

A job whose minute or hour field starts with `*` goes on by real time: nothing in a gap of the local clock, both passes
of a repeated hour. Any other job has fixed times: one that a gap skips fires once at the first instant after the gap
(a missing day is a gap too), one that exists twice fires at the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from services.core.domain.errors import FieldError, InvalidInput
from services.core.domain.text_rule import json_type

MAX_LENGTH = 1000

_MONTHS = dict(JAN=1, FEB=2, MAR=3, APR=4, MAY=5, JUN=6, JUL=7, AUG=8, SEP=9, OCT=10, NOV=11, DEC=12)
_DAYS = dict(SUN=0, MON=1, TUE=2, WED=3, THU=4, FRI=5, SAT=6)
_ITEM = re.compile(
    r"(?:(?P<star>\*)|(?P<first>[0-9]+|[A-Za-z]+)(?:-(?P<last>[0-9]+|[A-Za-z]+))?)(?:/(?P<step>[0-9]+))?"
)
_LONGEST = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}
_NOT_ZONES = frozenset(("Factory", "localtime", "posixrules"))

_MINUTE = timedelta(minutes=1)
_NEAR = timedelta(days=2)
_PROBE = timedelta(hours=6)
_YEARS_AHEAD = 401
"""The calendar repeats after 400 years: a job that has no day by then never has one."""


class CronError(InvalidInput):
    """A cron expression or zone that is refused; the message says why. `field` is `cron` or `timezone`."""

    reason = "BAD_CRON"

    def __init__(self, message: str, field: str = "cron") -> None:
        super().__init__(message, errors=[FieldError(field, message)])
        self.field = field


@dataclass(frozen=True, slots=True)
class Schedule:
    """A parsed cron expression. `weekdays` has Sunday as 0; `last_day` is the `L` of the day of month."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    last_day: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    """Day of month and day of week must both match; else one of them is enough."""
    wildcard: bool
    """Goes on by real time instead of having fixed times."""
    timezone: str


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: dict[str, int]


_DAY_OF_MONTH = _Field("day of month", 1, 31, {})
_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _DAY_OF_MONTH,
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


def parse_cron(expression: object, timezone: object = None) -> Schedule:
    """The schedule of an expression in an IANA zone, exactly spelled; None is UTC. Raises CronError."""
    if not isinstance(expression, str):
        raise CronError(f"a cron expression is a string, not {json_type(expression)}")
    if len(expression) > MAX_LENGTH:
        raise CronError(f"a cron expression has at most {MAX_LENGTH} characters, this has {len(expression)}")
    texts = [text for text in re.split("[ \t]+", expression) if text]
    if expression.lstrip(" \t").startswith("@"):
        raise CronError(f"macros such as {texts[0][:20]!a} are not taken: write the five fields")
    if len(texts) != len(_FIELDS):
        raise CronError(f"a cron expression has five fields (minute hour day month weekday), this has {len(texts)}")
    if timezone is not None:
        load_zone(timezone)
    days, last_day = _parse_days(texts[2])
    minutes, hours, months, weekdays = (
        _parse_field(field, texts[index]) for index, field in enumerate(_FIELDS) if field is not _DAY_OF_MONTH
    )
    schedule = Schedule(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        last_day=last_day,
        months=months,
        weekdays=frozenset(weekday % 7 for weekday in weekdays),
        both_days=texts[2].startswith("*") or texts[4].startswith("*"),
        wildcard=texts[0].startswith("*") or texts[1].startswith("*"),
        timezone="UTC" if timezone is None else str(timezone),
    )
    if schedule.both_days and not last_day and min(days) > max(_LONGEST[month] for month in months):
        raise CronError(f"never fires: no month of {sorted(months)} has a day {min(days)}")
    return schedule


def next_fires(schedule: Schedule, after: datetime, n: int, *, until: datetime | None = None) -> list[datetime]:
    """The first `n` fire instants strictly after an aware instant, in UTC, increasing; none after `until`.

    Fewer where the calendar of `datetime` ends first. The time it takes does not depend on how far away they are.
    """
    if after.tzinfo is None:
        raise ValueError("after must be aware")
    zone = load_zone(schedule.timezone)
    fires: list[datetime] = []
    at = after.astimezone(UTC).replace(microsecond=0)
    while len(fires) < n:
        try:
            found = _next_fire(schedule, zone, at)
        except OverflowError:
            break
        if found is None or (until is not None and found > until):
            break
        fires.append(found)
        at = found
    return fires


def latest_fires(schedule: Schedule, first: datetime, until: datetime, most: int) -> list[datetime]:
    """Of the fire instant `first` and those after it up to `until`, the latest `most`, increasing.

    The time it takes grows with `most`, not with how many there are.
    """
    fires = [first, *next_fires(schedule, first, most, until=until)]
    if len(fires) <= most:
        return fires
    enough, too_few = first, until  # at least `most` of them are after `enough`
    while too_few - enough > _MINUTE:
        middle = enough + (too_few - enough) / 2
        if len(next_fires(schedule, middle, most, until=until)) == most:
            enough = middle
        else:
            too_few = middle
    return next_fires(schedule, enough, most + 1, until=until)[-most:]


def load_zone(name: object) -> ZoneInfo:
    """The IANA zone of that exact name, of the tzdata that the engine is installed with. Raises CronError.

    The operating system's zones are not asked: services on two machines must agree, and some file systems take any
    spelling.
    """
    if not isinstance(name, str):
        raise CronError(f"a timezone is an IANA name such as Europe/Istanbul, not {json_type(name)}", "timezone")
    if name not in _zone_names():
        raise CronError(
            f"{name[:60]!a} is no IANA timezone, exactly spelled, such as Europe/Istanbul or UTC", "timezone"
        )
    return _zone(name)


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text().split()) - _NOT_ZONES


def _parse_days(text: str) -> tuple[frozenset[int], bool]:
    """The days of the month, and whether `L` is among them."""
    items = text.split(",")
    numbered = [item for item in items if item != "L"]
    days = _parse_field(_DAY_OF_MONTH, ",".join(numbered)) if numbered else frozenset[int]()
    return days, len(numbered) < len(items)


def _parse_field(field: _Field, text: str) -> frozenset[int]:
    numbers: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise CronError(f"{field.name}: {item[:40]!a} is none of *, N, N-M, with an optional /step")
        step = int(match["step"][:6]) if match["step"] else 1
        if step == 0:
            raise CronError(f"{field.name}: the step of {item[:40]!a} must be at least 1")
        low, high = _range(field, match)
        numbers.update(range(low, high + 1, step))
    return frozenset(numbers)


def _range(field: _Field, match: re.Match[str]) -> tuple[int, int]:
    if match["star"]:
        return field.low, field.high
    low = _number(field, match["first"])
    if match["last"]:
        high = _number(field, match["last"])
        if high < low:
            raise CronError(f"{field.name}: the range {match[0][:40]!a} runs backwards; ranges do not wrap around")
        return low, high
    return low, field.high if match["step"] else low


def _number(field: _Field, text: str) -> int:
    if text[0].isdigit():
        number = int(text) if len(text) <= 9 else field.high + 1
    else:
        number = field.names.get(text.upper(), -1)
    if not field.low <= number <= field.high:
        names = f" or {'|'.join(field.names)}" if field.names else ""
        raise CronError(f"{field.name}: {text[:40]!a} is not {field.low}-{field.high}{names}")
    return number


def _next_fire(schedule: Schedule, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Walk the stretches of constant offset: inside one, local time is plain arithmetic."""
    at = after
    local = _minute_after(_wall(at, zone))
    while True:
        offset = _offset(at, zone)
        wall = _next_wall(schedule, local)
        if wall is None:
            return None
        instant = (wall - offset).replace(tzinfo=UTC)
        if instant - at > 2 * _NEAR:
            # Far away. A change of the clocks matters soon after the last fire (it may repeat what has passed) and
            # shortly before the next (it may skip it); what lies between would only be walked through.
            repeats = _first_change(at, at + _NEAR, zone)
            at, local = (repeats, _ceil(_wall(repeats, zone))) if repeats else _near(instant, zone)
            continue
        change = _first_change(at, instant, zone)
        if change is None:
            if schedule.wildcard or not instant.astimezone(zone).fold:
                return instant
            local = wall + _MINUTE  # the second pass of a repeated time
            continue
        skipped_from = change.replace(tzinfo=None) + offset
        at, local = change, _ceil(_wall(change, zone))
        if not schedule.wildcard and wall < _wall(change, zone) and wall >= skipped_from:
            return change


def _near(instant: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """An instant shortly before another, and the local minute after it."""
    at = instant - _NEAR
    return at, _minute_after(_wall(at, zone))


def _first_change(start: datetime, end: datetime, zone: ZoneInfo) -> datetime | None:
    """The first instant in (start, end] with another offset than `start`. Changes are whole seconds, hours apart."""
    offset = _offset(start, zone)
    low = start
    while low < end:
        high = min(low + _PROBE, end)
        if _offset(high, zone) != offset:
            return _bisect(low, high, offset, zone)
        low = high
    return None


def _bisect(low: datetime, high: datetime, offset: timedelta, zone: ZoneInfo) -> datetime:
    while (high - low) > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if _offset(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high


def _next_wall(schedule: Schedule, start: datetime) -> datetime | None:
    """The first local minute from `start` on that matches, by the calendar alone."""
    day, earliest = start.date(), (start.hour, start.minute)
    last_year = min(start.year + _YEARS_AHEAD, date.max.year - 1)
    while day.year <= last_year:
        if _day_matches(schedule, day):
            for hour in schedule.hours:
                if hour < earliest[0]:
                    continue
                first = earliest[1] if hour == earliest[0] else 0
                for minute in schedule.minutes:
                    if minute >= first:
                        return datetime.combine(day, time(hour, minute))
        earliest = (0, 0)
        day = day + timedelta(days=1) if day.month in schedule.months else _next_month(day)
    return None


def _day_matches(schedule: Schedule, day: date) -> bool:
    if day.month not in schedule.months:
        return False
    of_month = day.day in schedule.days or (schedule.last_day and (day + timedelta(days=1)).day == 1)
    of_week = day.isoweekday() % 7 in schedule.weekdays
    return (of_month and of_week) if schedule.both_days else (of_month or of_week)


def _next_month(day: date) -> date:
    return date(day.year + 1, 1, 1) if day.month == 12 else date(day.year, day.month + 1, 1)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None, "a ZoneInfo always has an offset"
    return offset


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _minute_after(wall: datetime) -> datetime:
    return wall.replace(second=0, microsecond=0) + _MINUTE


def _ceil(wall: datetime) -> datetime:
    floor = wall.replace(second=0, microsecond=0)
    return floor if floor == wall else floor + _MINUTE
