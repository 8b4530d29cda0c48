"""Events as nearly all senders give them, read in one go.

A request in which nothing is wrong is recognized here at a third of the cost of walking it: one pass of the scanner of
`json` judges the whole body, one of msgspec finds the text of each `data`. Whatever breaks a rule, or is not plain
enough to be sure, is left to `event`, which knows every form and every fault: what is read here is what it would read
(`tests/unit/test_plain_events.py`).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from services.core.domain.event import MAX_ID_BYTES, MAX_TS, EventLimits, NewEvent
from services.core.domain.json_text import scan_value

_MOST_BYTES = 1 << 20
"""More is left to the walk, which decodes one value at a time: all at once may take a hundred times the bytes."""

_MOST_BRACKETS = 100
"""Fewer than the levels of nesting that are allowed, so that no count of levels is needed."""

_name = re.compile(r"(?!runr/)[A-Za-z0-9._:/-]{1,200}").fullmatch
_id = re.compile(rf"[ -~]{{1,{MAX_ID_BYTES}}}").fullmatch
_FIELDS = frozenset(("name", "data", "id", "ts"))
_BLANKS = " \t\n\r"


class _DataOf(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Listed(msgspec.Struct):
    events: list[_DataOf]


_one = msgspec.json.Decoder(_DataOf).decode
_many = msgspec.json.Decoder(list[_DataOf]).decode
_listed = msgspec.json.Decoder(_Listed).decode


def plain_events(body: bytes, limits: EventLimits) -> list[NewEvent] | None:
    """The events of a request body; None if they are not that plain."""
    if len(body) > _MOST_BYTES:
        return None
    try:
        text = body.decode().strip(_BLANKS)
        value, end = scan_value(text, 0)
        if end != len(text):
            return None
        if isinstance(value, list):
            found, raws = value, _many(body)
        elif isinstance(value, dict) and "events" not in value:
            found, raws = [value], [_one(body)]
        elif isinstance(value, dict) and len(value) == 1 and isinstance(value["events"], list):
            found, raws = value["events"], _listed(body).events
        else:
            return None
    except (ValueError, StopIteration, RecursionError, msgspec.MsgspecError):
        return None
    return _all_plain(found, raws, limits)


def plain_list(values: list[Any], text: str, limits: EventLimits) -> list[NewEvent] | None:
    """The events of a list that was read already: `values` are those of `text`."""
    try:
        return _all_plain(values, _many(text), limits)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _all_plain(found: list[Any], raws: list[_DataOf], limits: EventLimits) -> list[NewEvent] | None:
    if not 1 <= len(found) <= limits.events:
        return None
    events = []
    for fields, raw in zip(found, raws, strict=True):
        if not isinstance(fields, dict) or not fields.keys() <= _FIELDS:
            return None
        data = bytes(raw.data).decode()
        event = _event(fields.get("name"), fields.get("data", {}), data, fields, limits)
        if event is None:
            return None
        events.append(event)
    return events


def plain_event(name: str, data: str, *, id: str | None, ts: int | None, limits: EventLimits) -> NewEvent | None:
    """An event that came as separate fields; None if it is not that plain."""
    fields: dict[str, Any] = {}
    if id is not None:
        fields["id"] = id
    if ts is not None:
        fields["ts"] = ts
    try:
        value, end = scan_value(data, 0)
    except (ValueError, StopIteration, RecursionError):
        return None
    return _event(name, value, data, fields, limits) if end == len(data) else None


def _event(name: object, value: object, data: str, fields: dict[str, Any], limits: EventLimits) -> NewEvent | None:
    if not isinstance(name, str) or not _name(name) or not isinstance(value, dict) or _brackets(data) > _MOST_BRACKETS:
        return None
    size = len(name) + (len(data) if data.isascii() else len(data.encode()))
    if size > limits.event_bytes:
        return None
    id, ts = fields.get("id"), fields.get("ts")
    if "id" in fields and not (isinstance(id, str) and _id(id)):
        return None
    if "ts" in fields and not (type(ts) is int and 0 <= ts <= MAX_TS):
        return None
    return NewEvent(name=name, data=data, id=id, ts=ts)


def _brackets(text: str) -> int:
    return text.count("{") + text.count("[")
