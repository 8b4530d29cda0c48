"""Examples of bodies and answers, made of their schemas: what a field is called says what it looks like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_TIME = "2026-10-10T10:00:00.000Z"
_RUN = "01JTX4A1V0R8XWQ3M8Z5B2C7DE"
_EVENT = "01JTX4A1TZ6G4Q9K2N8P5R3S7T"
_CREDENTIAL = "01JTX49Z8Y3H7J5K2M9N6P4Q1R"

_MISSING = object()
_BY_NAME: Mapping[str, Any] = {
    "id": _RUN,
    "ids": [_RUN],
    "runs": [_RUN],
    "sample": [_RUN],
    "resumed_runs": [],
    "cancelled_runs": [],
    "run_id": _RUN,
    "last_run_id": _RUN,
    "child_run_id": None,
    "timed_out": False,
    "waiting_for": None,
    "archived": [],
    "parent_run_id": None,
    "replay_of_run_id": None,
    "step_id": "charge-card",
    "token_id": _CREDENTIAL,
    "event_id": _EVENT,
    "workflow": "process-order",
    "project": "shop",
    "slug": "shop",
    "tenant": "acme",
    "name": "process-order",
    "status": "completed",
    "source": "api",
    "kind": "run",
    "action": "cancel",
    "tags": ["vip"],
    "idempotency_key": "order-o-1",
    "data": {"order_id": "o-1"},
    "output": {"shipped": True},
    "input": ["o-1"],
    "sdk": {"name": "runr-workflows", "language": "python"},
    "ts": 1_791_626_400_000,
    "at": _TIME,
    "delay": "5m",
    "from": "2026-10-09T00:00:00.000Z",
    "to": "2026-10-10T00:00:00.000Z",
    "day": "2026-10-10",
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "email": "ada@example.com",
    "role": "developer",
    "abilities": ["workflows.view"],
    "actor": "token:" + _CREDENTIAL,
    "subject": "project/shop",
    "cron": "0 6 * * *",
    "timezone": "Europe/Berlin",
    "catch_up": "latest",
    "next_at": [_TIME],
    "event": "order.shipped",
    "condition": "event.data.id == async.data.id",
    "warnings": [],
    "errors": [],
    "error": None,
    "endpoint_url": "https://shop.example.com/workflows",
    "effective_url": "https://shop.example.com/workflows",
    "queue_bridge_url": None,
    "queue_stream": None,
    "trigger_type": "workflow",
    "key_fingerprint": "a3f1c29b7d5e8046",
    "previous_key_fingerprint": None,
    "signing_key": "signkey_0123456789abcdef",
    "previous_signing_key": None,
    "token": "rt_0123456789abcdef",
    "csrf_token": "mJ0x9zKqQ2w",
    "password": "correct horse battery staple",
    "current_password": "correct horse battery staple",
    "new_password": "another battery of horses",
    "version": "9f2c1e",
    "message": "the card was declined",
    "stack": None,
    "next_cursor": None,
    "children": [],
    "child": None,
    "faults": [],
    "skipped": [],
}
_NAMED_OTHERWISE: Mapping[str, Mapping[str, Any]] = {
    "EventResult": {"id": _EVENT, "name": "order.created"},
    "EventsAccepted": {"ids": [_EVENT]},
    "Event": {"id": _EVENT, "name": "order.created", "source": "api", "run_id": None},
    "startBulkJob": {"action": "retry", "filter": {"workflow": "process-order", "status": "failed"}},
    "TriggerEvent": {"id": _EVENT, "name": "order.created"},
    "Run": {"event": None},
    "RunDetail": {"event": None},
    "Step": {"id": "charge-card", "name": "charge-card"},
    "Failure": {"name": "CardDeclined"},
    "Token": {"id": _CREDENTIAL, "name": "deploy"},
    "NewToken": {"id": _CREDENTIAL, "name": "deploy"},
    "Role": {"name": "developer"},
    "Tenant": {"id": "acme", "name": "Acme"},
    "Project": {"name": "Shop"},
    "Sync": {"status": "synced", "message": None},
    "Audit": {"action": "token.create"},
    "Caller": {"id": _CREDENTIAL},
    "BulkJob": {"status": "running"},
    "BulkStart": {"status": "running"},
}
_LEFT_OUT: Mapping[str, tuple[str, ...]] = {"startRun": ("at",)}
"""Fields that exclude another one."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def example_of(schema: Schema, components: Mapping[str, Schema], *, name: str = "", of: str = "") -> Any:
    """A value that a schema allows. `name` is that of the field, `of` that of the component that has it."""
    given = _NAMED_OTHERWISE.get(of, {}).get(name, _BY_NAME.get(name, _MISSING))
    if given is not _MISSING and _fits(given, schema):
        return given
    if "$ref" in schema:
        component = schema["$ref"].rpartition("/")[2]
        return example_of(components[component], components, name="", of=component)
    for options in ("anyOf", "oneOf"):
        if options in schema:
            return example_of(schema[options][0], components, name=name, of=of)
    return _by_type(schema, components, of)


def _by_type(schema: Schema, components: Mapping[str, Schema], of: str) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object":
            fields = schema.get("properties", {})
            left_out = _LEFT_OUT.get(of, ())
            return {
                name: example_of(field, components, name=name, of=of)
                for name, field in fields.items()
                if name not in left_out
            }
        case "array":
            return [example_of(schema.get("items", {}), components, of=of)]
        case "string":
            return _TIME if schema.get("format") == "date-time" else "text"
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return None


def _fits(value: Any, schema: Schema) -> bool:
    """Whether a value is of the kind that a schema asks for: fields of one name may be of several."""
    if "anyOf" in schema:
        return any(_fits(value, option) for option in schema["anyOf"])
    if "$ref" in schema:
        return isinstance(value, dict)
    if "enum" in schema:
        return value in schema["enum"]
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    return not kinds or any(isinstance(value, _TYPES[kind]) for kind in kinds)
