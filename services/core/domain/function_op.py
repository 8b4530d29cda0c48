"""One op of an answer, from its members to a value of `op.py` (protocol section 3).

Three kinds of fault, each with its own end:
- what makes the op unusable (no step id, an unknown op, an error that is no error) is a `ProtocolError`: raised;
- a field of the workflow's author (a duration, an event name, an expression, a size): the step becomes a `BadStep`;
- `retry_after`, `max_attempts` and what only the timeline shows: ignored, the first two with a warning.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from services.core.domain import expression
from services.core.domain.duration import parse_duration, parse_time
from services.core.domain.errors import DomainError, TooLarge
from services.core.domain.event import EventLimits, NewEvent, listener_name_fault, validate_event
from services.core.domain.function_field import (
    MESSAGE_BYTES,
    BadField,
    Members,
    error_of,
    flag,
    is_integer,
    parsed,
    payload,
    refuse,
    retry_after,
    shown,
    value_of,
)
from services.core.domain.json_fault import MAX_DEPTH
from services.core.domain.json_text import Raw, Reader
from services.core.domain.op import (
    BadStep,
    EventToSend,
    Invoke,
    Op,
    OpError,
    RunCompleted,
    RunFailed,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
    StepOp,
    WaitForEvent,
)
from services.core.domain.plain_events import plain_list
from services.core.domain.safe_text import cut, storable, utf8_size
from services.core.domain.step_id import display_name, own_bytes, step_id_fault

MAX_EVENTS = 100
_DEPTH_OF_OP = MAX_DEPTH + 3
_INPUT_BYTES = 32 * 1024
_ATTEMPTS = range(1, 22)
_LONGEST_MS = 10**15
_SINCE_START = -1
_RESERVED_NAMES = ("app", "sync")

_workflow_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch


class AnswerLimits(Protocol):
    """The limits of engine section 8 that an answer meets, in bytes."""

    @property
    def output_bytes(self) -> int:
        """Of a step's output, a run's output, and the data of an invoke."""
        ...

    @property
    def event_bytes(self) -> int:
        """Of an event's name and data."""
        ...

    @property
    def step_id_bytes(self) -> int:
        """Of a step id without its counter."""
        ...


class _Step(TypedDict):
    id: str
    name: str
    duration_ms: int | None
    input: str | None
    max_attempts: int | None


@dataclass(frozen=True, slots=True)
class _StepKind:
    kind: str
    read: Callable[[Members, _Step, AnswerLimits], StepOp]


def read_op(op: Members, limits: AnswerLimits) -> Op:
    """The op that the members say. Raises FunctionFault `ProtocolError` for one that cannot be used at all."""
    word = value_of(op, "op")
    if word == "run_completed":
        return _run_completed(op, limits)
    if word == "run_failed":
        return _run_failed(op)
    kind = _STEP_KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        refuse(f"op {shown(op, 'op')} is not one that this engine knows")
    step = _read_step(op)
    try:
        _check_size(step["id"], limits)
        return kind.read(op, step, limits)  # type: ignore[return-value]
    except BadField as fault:
        message = cut(storable(f"{word} {json.dumps(step['id'])}: {fault}"), MESSAGE_BYTES)
        return BadStep(**step, kind=kind.kind, error=OpError(fault.name, message))


def _read_step(op: Members) -> _Step:
    step_id = value_of(op, "id")
    fault = step_id_fault(step_id)
    if fault is not None:
        refuse(f"id {shown(op, 'id')}: {fault}")
    attempts = value_of(op, "max_attempts")
    return _Step(
        id=step_id,
        name=display_name(step_id, value_of(op, "name")),
        duration_ms=_took(value_of(op, "duration_ms")),
        input=_input(op),
        max_attempts=attempts if is_integer(attempts) and attempts in _ATTEMPTS else None,
    )


def _check_size(step_id: str, limits: AnswerLimits) -> None:
    size = own_bytes(step_id)
    if size > limits.step_id_bytes:
        raise BadField(f"id has {size} bytes before its counter, {limits.step_id_bytes} are allowed", "TooLarge")


def _input(op: Members) -> str | None:
    """The arguments of a `step.run` for the timeline, None where they are absent or too long for it."""
    member = op.get("input")
    return member.text if member is not None and utf8_size(member.text) <= _INPUT_BYTES else None


def _step_completed(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    return StepCompleted(**step, output=payload(op, "output", "null", limits.output_bytes))


def _step_failed(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    after_ms, at_ms, warning = retry_after(op)
    if "max_attempts" in op and step["max_attempts"] is None and value_of(op, "max_attempts") is not None:
        ignored = (
            f"max_attempts {shown(op, 'max_attempts')} is ignored: "
            f"an integer from {_ATTEMPTS[0]} to {_ATTEMPTS[-1]} is allowed"
        )
        warning = ignored if warning is None else f"{warning}; {ignored}"
    return StepFailed(
        **step,
        error=error_of(op),
        non_retriable=flag(op, "non_retriable"),
        retry_after_ms=after_ms,
        retry_at_ms=at_ms,
        warning=warning,
    )


def _sleep(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    for_ms, until_ms = parsed(op, "duration", parse_duration), parsed(op, "until", parse_time)
    if (for_ms is None) == (until_ms is None):
        raise BadField(f"exactly one of duration and until is needed, got {'none' if for_ms is None else 'both'}")
    return Sleep(**step, for_ms=for_ms, until_ms=until_ms)


def _wait_for_event(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    event = value_of(op, "event")
    fault = listener_name_fault(event)
    if fault is not None:
        raise BadField(f"event {shown(op, 'event')}: {fault}")
    return WaitForEvent(
        **step,
        event=event,
        condition=_condition(op),
        timeout_ms=_timeout(op),
        lookback_ms=_SINCE_START if value_of(op, "lookback") == "run" else parsed(op, "lookback", parse_duration),
    )


def _invoke(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    workflow = value_of(op, "workflow")
    if not isinstance(workflow, str) or not _workflow_name(workflow) or workflow in _RESERVED_NAMES:
        raise BadField(
            f"workflow {shown(op, 'workflow')} is not a workflow's name: 1 to 100 letters, digits and . _ -, "
            "a letter or digit first, and not app or sync"
        )
    data = payload(op, "data", "{}", limits.output_bytes)
    if not isinstance(value_of(op, "data"), dict | None):
        raise BadField(f"data {shown(op, 'data')} is not a JSON object")
    return Invoke(**step, workflow=workflow, data=data, timeout_ms=_timeout(op))


def _send_event(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    event_limits = EventLimits(events=MAX_EVENTS, event_bytes=limits.event_bytes)
    given = op.get("events")
    if given is not None and isinstance(given.value, list):
        plain = plain_list(given.value, given.text, event_limits)
        if plain is not None:
            return SendEvent(**step, events=tuple(map(_to_send, plain)))
    entries = _events(op)
    if not 1 <= len(entries) <= MAX_EVENTS:
        raise BadField(f"events has {len(entries)} events, 1 to {MAX_EVENTS} are allowed")
    return SendEvent(
        **step, events=tuple(_event(f"events[{at}]", entry, event_limits) for at, entry in enumerate(entries))
    )


def _events(op: Members) -> list[Members | Raw]:
    member = op.get("events")
    if member is None or not isinstance(member.value, list):
        raise BadField(f"events {shown(op, 'events')} is not a list of events")
    reader = Reader.of(member.text, max_depth=_DEPTH_OF_OP)
    return reader.read(lambda: reader.elements(lambda: reader.raw_members() if reader.opens("{") else reader.raw()))


def _to_send(event: NewEvent) -> EventToSend:
    return EventToSend(name=event.name, data=event.data, id=event.id, ts=event.ts)


def _event(path: str, entry: Members | Raw, limits: EventLimits) -> EventToSend:
    if isinstance(entry, Raw):
        raise BadField(f"{path} is not an event, a JSON object with a name")
    data = entry.get("data")
    try:
        event = validate_event(
            name=value_of(entry, "name"),
            data="{}" if data is None else data.text,
            id=value_of(entry, "id"),
            ts=value_of(entry, "ts"),
            path=path,
            limits=limits,
        )
    except DomainError as error:
        raise BadField(error.message, "TooLarge" if isinstance(error, TooLarge) else "InvalidStep") from error
    return _to_send(event)


def _run_completed(op: Members, limits: AnswerLimits) -> Op:
    try:
        return RunCompleted(output=payload(op, "output", "null", limits.output_bytes))
    except BadField as fault:
        return RunFailed(error=OpError(fault.name, f"run_completed: {fault}"), non_retriable=True)


def _run_failed(op: Members) -> Op:
    after_ms, at_ms, warning = retry_after(op)
    return RunFailed(
        error=error_of(op),
        non_retriable=flag(op, "non_retriable"),
        retry_after_ms=after_ms,
        retry_at_ms=at_ms,
        warning=warning,
    )


def _condition(op: Members) -> str | None:
    """`match` and `if` as one expression; both must hold where both are given."""
    parsed(op, "match", expression.match_expression)
    parsed(op, "if", expression.parse)
    return expression.match_and_if(value_of(op, "match"), value_of(op, "if"))


def _timeout(op: Members) -> int | None:
    timeout_ms = parsed(op, "timeout", parse_duration)
    if timeout_ms == 0:
        raise BadField(f"timeout {shown(op, 'timeout')}: must be longer than zero")
    return timeout_ms


def _took(value: Any) -> int | None:
    """A duration for the timeline; what is not one is no reason to refuse the step."""
    if isinstance(value, float) and math.isfinite(value):
        value = round(value)
    return value if is_integer(value) and 0 <= value <= _LONGEST_MS else None


_STEP_KINDS = {
    "step_completed": _StepKind("run", _step_completed),
    "step_failed": _StepKind("run", _step_failed),
    "sleep": _StepKind("sleep", _sleep),
    "wait_for_event": _StepKind("wait_for_event", _wait_for_event),
    "invoke": _StepKind("invoke", _invoke),
    "send_event": _StepKind("send_event", _send_event),
}
