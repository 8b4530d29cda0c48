"""Messages of queues: which event each becomes (engine section 3, "Queue bridge").

A message of a project's queue stream becomes the event `queue/<stream>` with the message's fields as data. Nothing of a
message is lost: a field that cannot be decoded stays what it is.
"""

from __future__ import annotations

import base64
import re

from services.core.domain.errors import InvalidInput, Malformed
from services.core.domain.event import DEFAULT_LIMITS, MAX_ID_BYTES, MAX_NAME, EventLimits, NewEvent, validate_event
from services.core.domain.json_fault import MAX_DEPTH, JsonError, deeper_than
from services.core.domain.json_text import Raw, dump, parse, read_object
from services.core.domain.text_rule import json_type, text_fault

WRAPPERS = ("data", "payload", "body", "message")
"""Names under which producers put a whole message as JSON: alone in a message, such a field is decoded."""

BASE64_FIELD = "data_base64"
"""Where a payload is found that is not UTF-8."""

_EVENT_PREFIX = "queue/"
_NATS = "nats:"
_MAX_STREAM = MAX_NAME - len(_EVENT_PREFIX)
_stream = re.compile(rf"[A-Za-z0-9._:-]{{1,{_MAX_STREAM}}}").fullmatch
# No dots: they part the subjects of JetStream.
_nats_stream = re.compile(rf"[A-Za-z0-9_-]{{1,{_MAX_STREAM - len(_NATS)}}}").fullmatch


def queue_stream_fault(queue_stream: str) -> str | None:
    """Why this is no queue stream of a project; None if it is one: a name, or `nats:` and the name of a JetStream
    stream.
    """
    if queue_stream.startswith(_NATS):
        if not _nats_stream(queue_stream[len(_NATS) :]):
            return (
                f"must name a JetStream stream behind {_NATS}, of letters, digits, _ and -, not {queue_stream[:80]!r}"
            )
    elif not _stream(queue_stream):
        return f"must be letters, digits and . _ : -, not {queue_stream[:80]!r}"
    return None


def nats_stream(queue_stream: str) -> str | None:
    """The JetStream stream that a project's queue stream names; None where its messages come over HTTP."""
    return queue_stream[len(_NATS) :] if queue_stream.startswith(_NATS) else None


def queue_event_name(queue_stream: str) -> str:
    """The event of a stream's messages. Where the stream lives is not part of it."""
    return _EVENT_PREFIX + queue_stream.removeprefix(_NATS)


def entry_key(project: int, queue_stream: str, entry_id: str) -> str:
    """The dedupe key of a message: unique over all streams of all projects (engine section 6)."""
    return f"{project}/{queue_stream}/{entry_id}"


def check_entry_id(entry_id: str) -> None:
    """Raises InvalidInput for what cannot be the id of a stream's entry."""
    fault = text_fault(entry_id, max_bytes=MAX_ID_BYTES)
    if fault:
        raise InvalidInput.of("entry_id", fault)


def queue_event(queue_stream: str, fields: bytes | str, limits: EventLimits = DEFAULT_LIMITS) -> NewEvent:
    """The event of a message whose fields are this JSON object.

    Raises Malformed for what is no JSON, TooLarge when name and data are more than an event may hold, InvalidInput for
    what is no object or nested too deep.
    """
    return validate_event(name=queue_event_name(queue_stream), data=_data(fields), limits=limits)


def payload_fields(payload: bytes) -> str:
    """The fields of a message that is one payload: `data` with its text, or `data_base64` if it is not UTF-8."""
    try:
        return f'{{"data":{dump(payload.decode())}}}'
    except UnicodeDecodeError:
        return f'{{"{BASE64_FIELD}":"{base64.b64encode(payload).decode()}"}}'


def _data(fields: bytes | str) -> str:
    members = _members(fields)
    if len(members) == 1:
        ((name, raw),) = members.items()
        if name in WRAPPERS:
            return _unwrapped(name, raw)
    return fields.decode() if isinstance(fields, bytes) else fields


def _members(fields: bytes | str) -> dict[str, Raw]:
    try:
        return read_object(fields, root="fields")
    except Malformed:
        value = parse(fields, root="fields")  # what is JSON is only of another kind
    raise InvalidInput.of("fields", f"must be a JSON object, not {json_type(value)}")


def _unwrapped(name: str, raw: Raw) -> str:
    """The data of a message whose only field is this one."""
    if isinstance(raw.value, dict):
        return raw.text
    text = raw.text
    if isinstance(raw.value, str):
        try:
            inner = parse(raw.value)
        except JsonError:
            inner = None  # no JSON, or JSON that an event may not hold: it stays the text that it is
        else:
            text = raw.value.strip()
        if isinstance(inner, dict):
            return text
        if deeper_than(text, MAX_DEPTH - 1):
            text = raw.text
    return f'{{"{name}":{text}}}'
