"""Durations and times: `vectors/durations.json` is the rule book (protocol section 5)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from .errors import Duration, StepArgumentError

MAX_MS = 10**15

_UNIT_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_UNITS = re.compile(
    r"(?:(?P<w>[0-9.]+)w)?(?:(?P<d>[0-9.]+)d)?(?:(?P<h>[0-9.]+)h)?(?:(?P<m>[0-9.]+)m(?!s))?"
    r"(?:(?P<s>[0-9.]+)s)?(?:(?P<ms>[0-9.]+)ms)?",
    re.ASCII,
)
_ISO_WEEKS = re.compile(r"P(?P<w>[0-9.,]+)W", re.ASCII)
_ISO = re.compile(
    r"P(?:(?P<d>[0-9.,]+)D)?(?P<time>T(?:(?P<h>[0-9.,]+)H)?(?:(?P<m>[0-9.,]+)M)?(?:(?P<s>[0-9.,]+)S)?)?",
    re.ASCII,
)
_LONGEST_TEXT = 100
_EXACT = Context(prec=150)


def parse_duration(value: object) -> int:
    """The whole milliseconds of a duration, rounded half up in decimal arithmetic.

    Raises StepArgumentError (a ValueError) for everything that is not one, negative ones included.
    """
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        return _bounded(_round(Decimal(micros) / 1000), value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounded(_milliseconds_of_number(value), value)
    if isinstance(value, str) and value and len(value) <= _LONGEST_TEXT:
        if _NUMBER.fullmatch(value):
            return _bounded(_round(_EXACT.multiply(Decimal(value), Decimal(1000))), value)
        parts = _parts(value)
        if parts:
            return _bounded(_sum(parts, value), value)
    raise _not_a_duration(value)


def duration_field(value: Duration, field: str, *, zero: bool = False) -> str | int | float:
    """A duration as an op carries it: the user's own text or number, a timedelta as milliseconds.

    `zero`: whether a duration of nothing is allowed. Raises StepArgumentError naming `field`.
    """
    try:
        milliseconds = parse_duration(value)
    except StepArgumentError as error:
        raise StepArgumentError(f"{field}: {error}") from None
    if milliseconds == 0 and not zero:
        raise StepArgumentError(f"{field}: must be longer than zero")
    return f"{milliseconds}ms" if isinstance(value, timedelta) else value


def time_field(value: datetime | str, field: str) -> str:
    """An absolute time as ISO-8601 in UTC; one without an offset is UTC already. Raises StepArgumentError."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime):
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            return moment.isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        pass
    raise StepArgumentError(f"{field}: {value!r} is not a time; give a datetime or ISO-8601 with an offset or Z")


def _parts(text: str) -> dict[str, str] | None:
    """Unit → number text, largest first, of a unit string or an ISO-8601 duration."""
    match = _ISO_WEEKS.fullmatch(text) or _ISO.fullmatch(text) or _UNITS.fullmatch(text)
    if match is None:
        return None
    groups = match.groupdict()
    if groups.pop("time", None) == "T":
        return None
    iso = text.startswith("P")
    return {unit: number.replace(",", ".") if iso else number for unit, number in groups.items() if number is not None}


def _sum(parts: dict[str, str], value: object) -> int:
    total = Decimal(0)
    last = list(parts)[-1]
    for unit, number in parts.items():
        if not _NUMBER.fullmatch(number) or ("." in number and unit != last):
            raise _not_a_duration(value)
        total = _EXACT.add(total, _EXACT.multiply(Decimal(number), Decimal(_UNIT_MS[unit])))
    return _round(total)


def _milliseconds_of_number(value: float) -> int:
    try:
        if isinstance(value, int):
            return value * 1000
        return _round(Decimal(repr(value)) * 1000)
    except (InvalidOperation, OverflowError, ValueError):
        raise _not_a_duration(value) from None


def _round(value: Decimal) -> int:
    if not value.is_finite():
        raise InvalidOperation
    return int(value.to_integral_value(ROUND_HALF_UP))


def _bounded(milliseconds: int, value: object) -> int:
    if not 0 <= milliseconds <= MAX_MS:
        raise _not_a_duration(value)
    return milliseconds


def _not_a_duration(value: object) -> StepArgumentError:
    try:
        shown = f"{value!r:.{_LONGEST_TEXT}}"
    except ValueError:  # an integer with more digits than Python shows
        shown = "the number"
    return StepArgumentError(
        f"{shown} is not a duration; allowed are 500ms, 30s, 15m, 2h, 1d, 1w, combinations "
        "(1h30m), ISO-8601 (PT1H), a number of seconds, or a timedelta, up to 10^15 ms"
    )
