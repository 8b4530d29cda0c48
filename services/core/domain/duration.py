"""Durations and absolute times as users write them (protocol section 5). Everything is whole milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

from services.core.domain.errors import InvalidInput
from services.core.domain.text_rule import json_type

MAX_MS = 10**15
"""The longest duration: about 31,700 years, well inside 64 bits."""

_ALLOWED = (
    "a duration is a number of seconds, units largest first like 500ms, 30s, 1h30m, 1.5h, 2d, 1w, "
    "or ISO-8601 like PT1H, P1DT2H, P2W"
)
_MAX_TEXT = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_OF = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

# `[0-9]` and not `\d`, which takes the digits of every script; always matched whole, so that no final newline slips by.
_SECONDS = re.compile(r"(?P<s>[0-9]+(?:\.[0-9]+)?)")
_UNITS = re.compile(
    r"(?=[0-9])"
    + "".join(rf"(?:(?P<{unit}>[0-9]+(?:\.[0-9]+)?){unit}(?![a-z]))?" for unit in _MS_OF).replace(
        "m(?![a-z])", "m(?!s)"
    )
)
_PART = r"[0-9]+(?:[.,][0-9]+)?"
_ISO = re.compile(
    rf"P(?:(?P<w>{_PART})W"
    rf"|(?=[0-9T])(?:(?P<d>{_PART})D)?(?:T(?=[0-9])(?:(?P<h>{_PART})H)?(?:(?P<m>{_PART})M)?(?:(?P<s>{_PART})S)?)?)"
)
_TIME = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:T(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:[.,](?P<fraction>[0-9]{1,30}))?"
    r"(?P<offset>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


class DurationError(InvalidInput):
    """A duration or time that is refused; the message names the value and what is allowed."""

    reason = "BAD_DURATION"


def parse_duration(value: object) -> int:
    """A duration in milliseconds, 0 to `MAX_MS`, rounded half up in decimal. Raises DurationError.

    Takes decoded JSON: a number (not a boolean) or a string of digits is seconds; else units or ISO-8601. Whether zero
    is allowed is the caller's rule.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DurationError(f"{json_type(value)} is not a duration: {_ALLOWED}")
    if isinstance(value, str):
        milliseconds = _from_text(value)
    elif value < 0 or value != value or value == float("inf"):
        raise DurationError(f"{value} is not a duration: it must be a number of seconds, 0 or more")
    else:
        above, below = (value, 1) if isinstance(value, int) else Decimal(repr(value)).as_integer_ratio()
        milliseconds = _half_up(above * 1000, below)
    if milliseconds > MAX_MS:
        raise DurationError(f"{_shown(value)} is over the longest duration, {MAX_MS} ms")
    return milliseconds


def parse_time(value: object) -> int:
    """An absolute time in unix milliseconds, negative before 1970. Raises DurationError.

    ISO-8601 calendar date, `T`, time of day with an optional fraction, and `Z` or an offset; without one it is UTC, and
    a date alone is its midnight in UTC.
    """
    allowed = "a time is ISO-8601 like 2026-10-10T09:00:00Z or 2026-10-10T12:00:00.500+03:00"
    if not isinstance(value, str):
        raise DurationError(f"{json_type(value)} is not a time: {allowed}")
    match = _TIME.fullmatch(value)
    if match is None:
        raise DurationError(f"{_shown(value)} is not a time: {allowed}")
    try:
        moment = datetime.fromisoformat(f"{match['day']}T{match['clock'] or '00:00'}").replace(tzinfo=UTC)
        offset = _offset_minutes(match["offset"])
    except ValueError as error:
        raise DurationError(f"{_shown(value)} is not a time: {error}") from None
    fraction = match["fraction"] or "0"
    seconds = int((moment - _EPOCH).total_seconds()) - offset * 60
    return seconds * 1000 + _half_up(int(fraction) * 1000, 10 ** len(fraction))


def format_duration(milliseconds: int) -> str:
    """A unit string for whole milliseconds, `0s` for none; `parse_duration` gives the same number back.

    Weeks are used for whole weeks only: 30 days are `30d`.
    """
    weeks, rest = divmod(milliseconds, _MS_OF["w"])
    if weeks and not rest:
        return f"{weeks}w"
    text, rest = "", milliseconds
    for unit, size in _MS_OF.items():
        if unit == "w":
            continue
        count, rest = divmod(rest, size)
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def _from_text(text: str) -> int:
    if len(text) > _MAX_TEXT:
        raise DurationError(f"{_shown(text)} is not a duration: it has over {_MAX_TEXT} characters")
    match = _SECONDS.fullmatch(text) or _UNITS.fullmatch(text) or _ISO.fullmatch(text)
    parts = {unit: part for unit, part in match.groupdict().items() if part} if match else {}
    if not parts:
        raise DurationError(f"{_shown(text)} is not a duration: {_why(text)}{_ALLOWED}")
    total, scale = 0, 1
    for unit, part in parts.items():
        if scale != 1:
            raise DurationError(f"{_shown(text)} is not a duration: only its last part may have a fraction")
        whole, _, fraction = part.replace(",", ".").partition(".")
        scale = 10 ** len(fraction)
        total = total * scale + int(whole + fraction) * _MS_OF[unit]
    return _half_up(total, scale)


def _why(text: str) -> str:
    if re.fullmatch(r"P[0-9.,DT]*[0-9]+[YM].*", text):
        return "years and months have no fixed length; "
    if text != text.strip():
        return "blanks around it are not trimmed; "
    return "it is empty; " if not text else ""


def _half_up(above: int, below: int) -> int:
    return (2 * above + below) // (2 * below)


def _offset_minutes(offset: str | None) -> int:
    if offset is None or offset == "Z":
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("its offset is not within 23:59")
    return (hours * 60 + minutes) * (-1 if offset[0] == "-" else 1)


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, float) or (isinstance(value, int) and value < 10**40) else repr(value)[:60]
    return text if isinstance(value, str | float) or len(text) < 60 else "the number"
