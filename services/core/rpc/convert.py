"""Domain ↔ proto: times, durations, and the words of enums (`status: timed_out` is RUN_STATE_TIMED_OUT)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from runr.workflows.v1 import resources_pb2

from services.core.domain.errors import InvalidInput

_MAX_UNIX_MS = 253_402_300_799_999
# What Timestamp and Duration allow; the bytes of a request can hold more.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_LONGEST_S = 315_576_000_000
_UNSPECIFIED = 0


def timestamp(unix_ms: int | None) -> Timestamp | None:
    """A Timestamp of unix milliseconds; None stays None, which leaves the field unset."""
    if unix_ms is None:
        return None
    made = Timestamp()
    set_timestamp(made, unix_ms)
    return made


def set_timestamp(time: Timestamp, unix_ms: int) -> None:
    """Set a Timestamp to unix milliseconds."""
    clamped = max(0, min(unix_ms, _MAX_UNIX_MS))
    time.seconds = clamped // 1_000
    time.nanos = clamped % 1_000 * 1_000_000


def unix_ms(message: Any, field: str) -> int | None:
    """The unix milliseconds of a Timestamp field, None where it is unset. Raises InvalidInput where it is no time."""
    if not message.HasField(field):
        return None
    value: Timestamp = getattr(message, field)
    seconds, nanos = value.seconds, value.nanos
    if not 0 <= nanos < 1_000_000_000:
        raise InvalidInput.of(field, f"nanos must be from 0 to 999999999, got {nanos}")
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise InvalidInput.of(field, f"must be a time of the years 1 to 9999, got second {seconds}")
    return int(seconds * 1_000 + nanos // 1_000_000)


def duration(milliseconds: int | None) -> Duration | None:
    """A Duration of milliseconds; None stays None."""
    if milliseconds is None:
        return None
    return Duration(seconds=milliseconds // 1_000, nanos=milliseconds % 1_000 * 1_000_000)


def duration_ms(message: Any, field: str) -> int | None:
    """The milliseconds of a Duration field, None where it is unset. Raises InvalidInput for a negative one."""
    if not message.HasField(field):
        return None
    value: Duration = getattr(message, field)
    if value.seconds < 0 or not 0 <= value.nanos < 1_000_000_000:
        raise InvalidInput.of(field, f"must not be negative, got {value.seconds} s and {value.nanos} ns")
    if value.seconds > _LONGEST_S:
        raise InvalidInput.of(field, f"must be at most {_LONGEST_S} seconds, got {value.seconds}")
    return int(value.seconds * 1_000 + value.nanos // 1_000_000)


@lru_cache(maxsize=1_024)
def word(enum: Any, number: int) -> str:
    """The word of an enum's value: `word(RunState, RUN_STATE_TIMED_OUT)` is "timed_out". "" for an unknown number."""
    value = enum.DESCRIPTOR.values_by_number.get(number)
    if value is None or number == _UNSPECIFIED:
        return ""
    return str(value.name).removeprefix(_prefix(enum)).lower()


def number(enum: Any, text: str) -> Any:
    """The value (a number) of a word of `enum`. Raises ValueError naming the words that are allowed."""
    value = enum.DESCRIPTOR.values_by_name.get(_prefix(enum) + text.upper())
    if value is None or value.number == _UNSPECIFIED or text != text.lower():
        raise ValueError(f"must be one of {', '.join(words(enum))}")
    return value.number


def words(enum: Any) -> tuple[str, ...]:
    """All words of an enum, in the order of their numbers."""
    return tuple(word(enum, value.number) for value in enum.DESCRIPTOR.values if value.number != _UNSPECIFIED)


def failure(name: str, message: str, stack: str | None = None) -> resources_pb2.Failure:
    """An error of user code or of the engine in its place."""
    return resources_pb2.Failure(name=name, message=message, stack=stack)


def _prefix(enum: Any) -> str:
    # Every enum's zero value is <PREFIX>_UNSPECIFIED; the style test holds it so.
    return str(enum.DESCRIPTOR.values_by_number[_UNSPECIFIED].name).removesuffix("UNSPECIFIED")
