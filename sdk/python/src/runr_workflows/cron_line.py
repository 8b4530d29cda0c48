"""Whether the engine takes a cron line (engine section 9). When it fires is the engine's to know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

MAX_LENGTH = 1000

_NONE: Mapping[str, int] = MappingProxyType({})
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 1
    )
}
_DAYS = {name: number for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}
_ITEM = re.compile(
    r"(?:(?P<star>\*)|(?P<first>[0-9]+|[A-Za-z]+)(?:-(?P<last>[0-9]+|[A-Za-z]+))?)(?:/(?P<step>[0-9]+))?"
)
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: Mapping[str, int] = _NONE


_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY_OF_MONTH = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_DAY_OF_WEEK = _Field("day of week", 0, 7, _DAYS)


def cron_fault(line: str) -> str | None:
    """Why the engine refuses a cron line; None if it does not."""
    if len(line) > MAX_LENGTH:
        return f"a cron expression has at most {MAX_LENGTH} characters, this has {len(line)}"
    texts = [text for text in re.split("[ \t]+", line) if text]
    if line.lstrip(" \t").startswith("@"):
        return f"macros such as {texts[0][:20]!a} are not taken: write the five fields"
    if len(texts) != 5:
        return f"a cron expression has five fields (minute hour day month weekday), this has {len(texts)}"
    minute, hour, day, month, weekday = texts
    try:
        numbered = [item for item in day.split(",") if item != "L"]
        days = _numbers(_DAY_OF_MONTH, ",".join(numbered)) if numbered else set[int]()
        _numbers(_MINUTE, minute)
        _numbers(_HOUR, hour)
        months = _numbers(_MONTH, month)
        _numbers(_DAY_OF_WEEK, weekday)
    except ValueError as fault:
        return str(fault)
    has_last = "L" in day.split(",")
    needs_both = day.startswith("*") or weekday.startswith("*")
    if needs_both and not has_last and min(days) > max(_LONGEST[number - 1] for number in months):
        return f"never fires: no month of {sorted(months)} has a day {min(days)}"
    return None


def _numbers(field: _Field, text: str) -> set[int]:
    """The numbers of a field. Raises ValueError."""
    numbers: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"{field.name}: {item[:40]!a} is none of *, N, N-M, with an optional /step")
        step = int(match["step"][:6]) if match["step"] else 1
        if step == 0:
            raise ValueError(f"{field.name}: the step of {item[:40]!a} must be at least 1")
        low, high = _range(field, match)
        numbers.update(range(low, high + 1, step))
    return numbers


def _range(field: _Field, match: re.Match[str]) -> tuple[int, int]:
    if match["star"]:
        return field.low, field.high
    low = _number(field, match["first"])
    if match["last"]:
        high = _number(field, match["last"])
        if high < low:
            raise ValueError(f"{field.name}: the range {match[0][:40]!a} runs backwards; ranges do not wrap around")
        return low, high
    return low, field.high if match["step"] else low


def _number(field: _Field, text: str) -> int:
    if text[0].isdigit():
        number = int(text) if len(text) <= 9 else field.high + 1
    else:
        number = field.names.get(text.upper(), -1)
    if not field.low <= number <= field.high:
        names = f" or {'|'.join(field.names)}" if field.names else ""
        raise ValueError(f"{field.name}: {text[:40]!a} is not {field.low}-{field.high}{names}")
    return number
