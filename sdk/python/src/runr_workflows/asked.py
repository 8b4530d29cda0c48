"""What the engine would refuse in a step call that it carries out, refused before it is asked (protocol section 3).

Only calls that have no stored result are judged: what a run has passed stays as it was, whatever the rules were then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from .calls import StepCall
from .definition_rules import workflow_name_fault
from .errors import StepArgumentError
from .event import EVENT_MEMBERS
from .event_names import listener_fault, sender_fault
from .known_options import refuse_unknown
from .shown import faulty, shown

MAX_ID_BYTES = 255
MAX_TS = 2**53 - 1
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def refuse_bad_fields(call: StepCall) -> None:
    """Raises StepArgumentError, which names field, value and what is allowed, for what the engine does not take.

    Also for members that no event has: the engine would take the event without them.
    """
    check = _CHECKS.get(call.op)
    if check is not None:
        check(call.fields)


def _wait(fields: Mapping[str, Any]) -> None:
    _refuse("event", fields["event"], listener_fault(fields["event"]))
    for name, argument in (("match", "match"), ("if", "if_")):
        text = fields.get(name)
        if text is not None:
            fault = _expression_fault(name, text)
            if fault is not None:
                raise StepArgumentError(f"{argument}: {fault}, in {shown(text, 100)}")


def _invoke(fields: Mapping[str, Any]) -> None:
    _refuse("workflow", fields["workflow"], workflow_name_fault(fields["workflow"]))


def _send(fields: Mapping[str, Any]) -> None:
    for index, event in enumerate(fields["events"]):
        path = f"events[{index}]"
        refuse_unknown(event, EVENT_MEMBERS, f"{path}.", StepArgumentError)
        _refuse(f"{path}.name", event["name"], sender_fault(event["name"]))
        data = event.get("data")
        if data is not None and not isinstance(data, Mapping):
            raise StepArgumentError(f"{path}.data: an object (dict), not {shown(data)}")
        _refuse(f"{path}.id", event.get("id"), _id_fault(event.get("id")))
        _refuse(f"{path}.ts", event.get("ts"), _time_fault(event.get("ts")))


def _id_fault(id: object) -> str | None:
    if id is None:
        return None
    allowed = f"a string of 1–{MAX_ID_BYTES} bytes without NUL and lone surrogates"
    if not isinstance(id, str) or not id or _UNSTORABLE.search(id) or len(id.encode()) > MAX_ID_BYTES:
        return allowed
    return None


def _time_fault(ts: object) -> str | None:
    if ts is None or (isinstance(ts, int) and not isinstance(ts, bool) and 0 <= ts <= MAX_TS):
        return None
    return f"a datetime, or unix time in whole milliseconds, 0–{MAX_TS}"


@lru_cache(maxsize=1024)
def _expression_fault(kind: str, text: str) -> str | None:
    """Most waits of a workflow have the same text every time."""
    grammar = import_module(".expression", __package__)
    try:
        (grammar.parse_match if kind == "match" else grammar.parse)(text)
    except ValueError as fault:
        return str(fault)
    return None


def _refuse(path: str, value: object, fault: str | None) -> None:
    if fault is not None:
        raise StepArgumentError(f"{path}: {faulty(value, fault)}")


_CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "wait_for_event": _wait,
    "invoke": _invoke,
    "send_event": _send,
}
