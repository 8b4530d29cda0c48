"""Events as senders give them: names, sizes, ids, times (engine section 6).

A request is accepted or refused whole, and every fault is named with its path. `data` stays the JSON text that arrived.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import msgspec

from services.core.domain.errors import FieldError, InvalidInput, TooLarge
from services.core.domain.json_fault import MAX_DEPTH, child_path, deeper_than
from services.core.domain.json_text import JsonValue, Raw, Reader, compact_size, parse
from services.core.domain.safe_text import utf8_size
from services.core.domain.text_rule import json_type, shown, text_fault

MAX_NAME = 200
MAX_ID_BYTES = 255
MAX_TS = 2**53 - 1
PLATFORM_PREFIX = "runr/"
RUN_EVENTS = frozenset(f"runr/run.{end}" for end in ("completed", "failed", "cancelled", "timed_out"))
"""The platform's events that workflows may listen to."""

_NAME = re.compile(r"[A-Za-z0-9._:/-]+")
_FIELDS = ("name", "data", "id", "ts")
_LEVELS_AROUND_DATA = 3
_LIST = Raw([], "[]")
# Beyond them the rest of a body is not read.
_MOST_FIELDS = 100
_COUNTED = 10
"""Up to so many times the events that may be there are counted."""

_SMALL = 1_024
_MOST_PADDING = 16
"""How many times as long as its compact form a text may be."""

_Fields = dict[str, Raw]


@dataclass(frozen=True, slots=True)
class EventLimits:
    """What one request may hold: events, and bytes of one event's name and compact data."""

    events: int = 100
    event_bytes: int = 262_144


DEFAULT_LIMITS = EventLimits()


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A valid event. `data` is the text of a JSON object; `id` the sender's dedupe key; `ts` unix milliseconds."""

    name: str
    data: str = "{}"
    id: str | None = None
    ts: int | None = None


def parse_events_body(body: bytes, limits: EventLimits = DEFAULT_LIMITS) -> list[NewEvent]:
    """The events of a request body: one event, a list of events, or `{"events": [...]}`.

    Raises Malformed for what is not JSON, TooLarge where sizes are the only faults, InvalidInput otherwise; a fault in
    the name of the fourth event has the path `events[3].name`.
    """
    reader = Reader.of(body, max_depth=MAX_DEPTH + _LEVELS_AROUND_DATA)
    faults = _Faults()
    found = reader.read(lambda: _read_body(reader, faults, limits))
    if len(found) > limits.events:
        faults.add("events", f"at most {limits.events} events a request, these are {len(found)}")
    elif not found and not faults.errors:
        faults.add("events", "must hold at least one event")
    else:
        events = [_checked(path, fields, limits, faults) for path, fields in found]
    faults.raise_if_any()
    return events


def validate_event(
    *,
    name: object,
    data: str = "{}",
    id: object = None,
    ts: object = None,
    path: str = "",
    limits: EventLimits = DEFAULT_LIMITS,
) -> NewEvent:
    """An event that came as separate fields, over gRPC or in a `send_event` op. `data` is JSON text; None is absent.

    Raises as `parse_events_body`; `path` is that of the event in the request.
    """
    fields: _Fields = {
        "name": Raw(cast(JsonValue, name), ""),
        "data": Raw(parse(data, root=child_path(path, "data")), data),
    }
    given = (("id", id), ("ts", ts))
    fields |= {key: Raw(cast(JsonValue, value), "") for key, value in given if value is not None}
    faults = _Faults()
    event = _checked(path, fields, limits, faults)
    faults.raise_if_any()
    return event


def sender_name_fault(name: object) -> str | None:
    """Why a sender may not use this as an event's name; None if it may."""
    if not isinstance(name, str):
        return f"must be a string, not {json_type(name)}"
    if not 1 <= len(name) <= MAX_NAME:
        return f"must have 1–{MAX_NAME} characters, it has {len(name)}"
    if not _NAME.fullmatch(name):
        return f"{name[:60]!a} may hold only letters a–z and A–Z, digits and . _ : / -"
    return f"names under {PLATFORM_PREFIX} are reserved for the platform" if name.startswith(PLATFORM_PREFIX) else None


def listener_name_fault(name: object) -> str | None:
    """Why a trigger, wait or cancel_on may not name this event; None if it may: a sender's name or `runr/run.*`."""
    if isinstance(name, str) and name.startswith(PLATFORM_PREFIX):
        return (
            None if name in RUN_EVENTS else f"of the platform's events only {', '.join(sorted(RUN_EVENTS))} are heard"
        )
    return sender_name_fault(name)


class _Faults:
    """All faults of one request."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self._only_sizes = True

    def add(self, path: str, message: str, *, size: bool = False) -> None:
        self.errors.append(FieldError(path, message))
        self._only_sizes &= size

    def raise_if_any(self) -> None:
        if self.errors:
            raise (TooLarge if self._only_sizes else InvalidInput).of_all(self.errors)


def _read_body(reader: Reader, faults: _Faults, limits: EventLimits) -> list[tuple[str, _Fields | Raw]]:
    """Each event with its path, nothing checked yet but the shape of the body, and how much there is of everything:
    megabytes of brackets are not decoded only to be refused. Raises TooLarge, InvalidInput.
    """
    if reader.opens("["):
        reader.root = "events"
        return _numbered(_read_list(reader, limits))
    if not reader.opens("{"):
        value = _read_value(reader, limits).value
        faults.add("", f'must be an event, a list of events or {{"events": […]}}, not {json_type(value)}')
        return []
    wrapped: list[list[_Fields | Raw]] = []

    def read(key: str) -> Raw:
        if key != "events" or not reader.opens("["):
            return _read_value(reader, limits)
        wrapped.append(_read_list(reader, limits))
        return _LIST

    fields = _read_fields(reader, read)
    if "events" not in fields:
        return [("", fields)]
    for key in fields:
        if key in _FIELDS:
            faults.add(key, "must not stand beside events: send one event, or a list of events")
        elif key != "events":
            faults.add(child_path("", key), "unknown field")
    if not wrapped:
        faults.add("events", f"must be a list of events, not {json_type(fields['events'].value)}")
    return _numbered(wrapped[0] if wrapped else [])


def _read_list(reader: Reader, limits: EventLimits) -> list[_Fields | Raw]:
    most = limits.events * _COUNTED
    left = most

    def read() -> _Fields | Raw:
        nonlocal left
        left -= 1
        if left < 0:
            raise InvalidInput.of("events", f"at most {limits.events} events a request, these are over {most}")
        if not reader.opens("{"):
            return _read_value(reader, limits)
        return _read_fields(reader, lambda _: _read_value(reader, limits))

    return reader.elements(read)


def _read_fields(reader: Reader, read: Callable[[str], Raw]) -> _Fields:
    left = _MOST_FIELDS

    def read_field(key: str) -> Raw:
        nonlocal left
        left -= 1
        if left < 0:
            raise InvalidInput.of(
                "", f"unknown fields: an event has {', '.join(_FIELDS)}, here are over {_MOST_FIELDS}"
            )
        return read(key)

    return reader.members(read_field)


def _read_value(reader: Reader, limits: EventLimits) -> Raw:
    """A value that is judged by its text: of a long object or list only that it is one is kept."""
    most = limits.event_bytes * _MOST_PADDING
    raw = reader.raw_within(most)
    if raw is None:
        raise TooLarge.of(
            "",
            f"one value has more than {most} characters: name and data of an event may have {limits.event_bytes} bytes",
        )
    if len(raw.text) <= _SMALL:
        return raw
    value: JsonValue = {} if isinstance(raw.value, dict) else [] if isinstance(raw.value, list) else raw.value
    return Raw(value, raw.text)


def _numbered(events: list[_Fields | Raw]) -> list[tuple[str, _Fields | Raw]]:
    return [(f"events[{index}]", event) for index, event in enumerate(events)]


def _checked(path: str, fields: _Fields | Raw, limits: EventLimits, faults: _Faults) -> NewEvent:
    """The event; what it holds is only true if no fault was added."""
    if isinstance(fields, Raw):
        faults.add(path, f"must be an event, a JSON object, not {json_type(fields.value)}")
        return NewEvent(name="")
    for key in fields:
        if key not in _FIELDS:
            faults.add(child_path(path, key), f"unknown field: an event has {', '.join(_FIELDS)}")
    name = _checked_name(path, fields.get("name"), faults)
    data = _checked_data(path, name, fields.get("data"), limits, faults)
    id, ts = fields.get("id"), fields.get("ts")
    fault = text_fault(id.value, max_bytes=MAX_ID_BYTES) if id else None
    if fault:
        faults.add(child_path(path, "id"), fault)
    if ts and not _is_time(ts.value):
        faults.add(
            child_path(path, "ts"), f"must be unix time in whole milliseconds, 0–{MAX_TS}, got {shown(ts.value)}"
        )
    return NewEvent(
        name=name,
        data=data,
        id=id.value if id and isinstance(id.value, str) else None,
        ts=ts.value if ts and isinstance(ts.value, int) else None,
    )


def _checked_name(path: str, name: Raw | None, faults: _Faults) -> str:
    fault = sender_name_fault(name.value) if name else "is required"
    if fault:
        faults.add(child_path(path, "name"), fault)
    return name.value if name and isinstance(name.value, str) else ""


def _checked_data(path: str, name: str, data: Raw | None, limits: EventLimits, faults: _Faults) -> str:
    if data is None:
        return "{}"
    where = child_path(path, "data")
    if not isinstance(data.value, dict):
        faults.add(where, f"must be a JSON object, not {json_type(data.value)}")
    elif deeper_than(data.text, MAX_DEPTH):
        faults.add(where, f"is nested deeper than {MAX_DEPTH} levels")
    elif len(name) + utf8_size(data.text) > limits.event_bytes:
        size = len(name) + compact_size(data.text)
        if size > limits.event_bytes:
            faults.add(where, f"name and data have {size} bytes, at most {limits.event_bytes} are allowed", size=True)
    return data.text


def _is_time(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TS
