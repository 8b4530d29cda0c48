"""The parsers of what strangers send, as functions of bytes, with texts that they take, for whoever tries others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from services.core.domain import expression
from services.core.domain.cron import next_fires, parse_cron
from services.core.domain.duration import parse_duration, parse_time
from services.core.domain.errors import DomainError
from services.core.domain.event import EventLimits, parse_events_body
from services.core.domain.function_answer import parse_answer, parse_introspection, parse_op
from services.core.domain.json_text import parse, payload_text
from services.core.domain.named_write import name_of
from services.core.domain.op import FunctionFault
from services.core.domain.plain_events import plain_events
from services.core.domain.run_change import Cursor
from services.core.domain.workflow import definitions_list, validate_definitions
from tests.support.function_answers import LIMITS

EVENT: Any = {"name": "e", "data": {"a": 1, "s": "x", "list": [1, {"k": 2}], "n": None}}


@dataclass(frozen=True)
class Parser:
    """`take` raises one of `refusals` for what it does not take, and nothing else."""

    take: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    taken: Sequence[bytes]


def _expression(data: bytes) -> None:
    text = data.decode(errors="replace")
    tree = expression.parse(text)
    expression.evaluate(tree, event=EVENT, async_=EVENT)
    condition = expression.specialize(tree, EVENT)
    kept = expression.condition_from_json(expression.condition_to_json(condition))
    assert expression.condition_holds(kept, EVENT) == expression.condition_holds(condition, EVENT)
    expression.index_key(condition)


def _events(data: bytes) -> None:
    limits = EventLimits()
    plain = plain_events(data, limits)
    found = parse_events_body(data, limits)
    assert plain in (None, found)


def _definitions(data: bytes) -> None:
    workflows, _ = definitions_list(parse(data))
    validate_definitions(workflows, strict_unknown=len(data) % 2 == 0)


def _cron(data: bytes) -> None:
    next_fires(parse_cron(data.decode(errors="replace"), "Europe/Berlin"), datetime(2026, 3, 29, tzinfo=UTC), 3)


def _text(take: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: take(data.decode(errors="replace"))


_OPS = [
    {"op": "step_completed", "id": "a", "name": "a", "output": {"x": 1.0}, "duration_ms": 5},
    {"op": "step_failed", "id": "a", "name": "a", "error": {"name": "E", "message": "m", "stack": "s"}},
    {"op": "sleep", "id": "s", "name": "s", "duration": "1h"},
    {"op": "wait_for_event", "id": "w", "name": "w", "event": "go", "match": "data.id", "timeout": "1d"},
    {"op": "invoke", "id": "i", "name": "i", "workflow": "w", "data": {}},
    {"op": "send_event", "id": "e", "name": "e", "events": [{"name": "x", "data": {}}]},
    {"op": "run_completed", "output": None},
    {"op": "run_failed", "error": {"name": "E", "message": "m"}},
]


def _answer(entries: list[Any]) -> bytes:
    return json.dumps({"runr_workflow": "v1", "ops": entries}).encode()


PARSERS: Mapping[str, Parser] = {
    "expression": Parser(
        _expression,
        (DomainError,),
        [
            b'event.data.a == 1 && (async.data["s"] != "x" || !event.data.list[1].k)',
            b"event.data.a >= -1.5e3",
            b'"a\\u0041" == event.name',
        ],
    ),
    "match": Parser(_text(expression.match_expression), (DomainError,), [b"data.order_id", b'data["a b"][0]']),
    "answer": Parser(
        lambda data: parse_answer(200, data, limits=LIMITS, max_ops=3), (FunctionFault,), [_answer([op]) for op in _OPS]
    ),
    "answer with a status": Parser(
        lambda data: parse_answer(data[0] * 4 if data else 500, data[1:], limits=LIMITS),
        (FunctionFault,),
        [b"\x32" + _answer(_OPS[:1])],
    ),
    "op": Parser(
        lambda data: parse_op(data, limits=LIMITS), (FunctionFault,), [json.dumps(op).encode() for op in _OPS]
    ),
    "introspection": Parser(
        lambda data: parse_introspection(200, data),
        (FunctionFault,),
        [b'{"runr_workflow": "v1", "sdk": {"name": "x", "language": "py"}, "workflows": [{"name": "w"}]}'],
    ),
    "definitions": Parser(
        _definitions,
        (DomainError,),
        [b'{"workflows": [{"name": "w", "triggers": [{"event": "e"}], "concurrency": {"limit": 1}}]}'],
    ),
    "events": Parser(
        _events,
        (DomainError,),
        [b'{"name": "a", "data": {"x": 1.0}, "id": "i", "ts": 5}', b'[{"name": "a"}]', b'{"events": [{"name": "a"}]}'],
    ),
    "payload": Parser(payload_text, (DomainError,), [b'{"a": [1, 2.50, "\\ud83d\\ude00"], "b": null}']),
    "cron": Parser(_cron, (DomainError,), [b"0 6 * * 1-5", b"*/5 1,2 1-10/3 JAN SUN"]),
    "duration": Parser(_text(parse_duration), (DomainError, ValueError), [b"1h30m", b"PT1H", b"500ms", b"90"]),
    "time": Parser(
        _text(parse_time), (DomainError, ValueError), [b"2026-10-10T10:00:00.000Z", b"2026-10-10T10:00:00+02:00"]
    ),
    "cursor": Parser(_text(Cursor.parse), (), [b"9c0f2a11-7731-0-a"]),
    "key": Parser(_text(name_of), (DomainError,), [b"k-1", b'"k\\"1"']),
}
