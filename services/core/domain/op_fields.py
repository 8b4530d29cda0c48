"""The own fields of an op as JSON, for the timeline of a run (protocol section 3, `input`)."""

from __future__ import annotations

import json

from services.core.domain.op import Invoke, SendEvent, Sleep, WaitForEvent


def op_fields(op: Sleep | WaitForEvent | Invoke | SendEvent) -> str:
    """The fields that a reader of the timeline wants to see, as JSON text; payloads as they were sent."""
    match op:
        case Sleep():
            return json.dumps({"duration_ms": op.for_ms} if op.for_ms is not None else {"until_ms": op.until_ms})
        case WaitForEvent():
            fields = {"event": op.event, "if": op.condition, "timeout_ms": op.timeout_ms, "lookback_ms": op.lookback_ms}
            return json.dumps({key: value for key, value in fields.items() if value is not None})
        case Invoke():
            timeout = "" if op.timeout_ms is None else f',"timeout_ms":{op.timeout_ms}'
            return f'{{"workflow":{json.dumps(op.workflow)},"data":{op.data}{timeout}}}'
        case SendEvent():
            names = [event.name for event in op.events]
            return json.dumps({"events": names})
