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
from typing import Any, NoReturn, Protocol, TypedDict

from services.core.domain import expression
from services.core.domain.duration import parse_duration, parse_time
from services.core.domain.errors import DomainError
from services.core.domain.json_fault import MAX_DEPTH, deeper_than
from services.core.domain.json_text import Raw
from services.core.domain.op import (
    BadStep,
    EventToSend,
    FunctionFault,
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
from services.core.domain.safe_text import cut, is_storable, storable, utf8_size

MAX_ID_BYTES = 255
MAX_EVENTS = 100
_NAME_BYTES, _MESSAGE_BYTES, _STACK_BYTES = 200, 8 * 1024, 32 * 1024
_INPUT_BYTES = 32 * 1024
_SHOWN = 100
_ATTEMPTS = range(1, 22)
_LONGEST_MS = 10**15
_SINCE_START = -1

_counter = re.compile(r":[0-9]+\Z")
_workflow_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch

Members = dict[str, Raw]
"""The fields of an op as they stand in the answer."""


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


class _BadField(Exception):
    """A field of the author's breaks a rule. `name` becomes the name of the step's error."""

    def __init__(self, message: str, name: str = "InvalidStep") -> None:
        super().__init__(message)
        self.name = name


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
    word = _value(op, "op")
    if word == "run_completed":
        return _run_completed(op, limits)
    if word == "run_failed":
        return _run_failed(op)
    kind = _STEP_KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        _refuse(f"op {_shown(op, 'op')} is not one that this engine knows")
    step = _read_step(op)
    try:
        return kind.read(op, step, limits)  # type: ignore[return-value]
    except _BadField as fault:
        message = cut(storable(f"{word} {json.dumps(step['id'])}: {fault}"), _MESSAGE_BYTES)
        return BadStep(**step, kind=kind.kind, error=OpError(fault.name, message))


def _read_step(op: Members) -> _Step:
    step_id = _value(op, "id")
    if not isinstance(step_id, str) or not step_id.strip() or not is_storable(step_id):
        _refuse(f"step id {_shown(op, 'id')} is not a text of 1 to {MAX_ID_BYTES} bytes without NUL")
    if utf8_size(step_id) > MAX_ID_BYTES:
        _refuse(f"step id {_shown(op, 'id')} has {utf8_size(step_id)} bytes, {MAX_ID_BYTES} are allowed")
    name = _value(op, "name")
    if not isinstance(name, str) or not name.strip():
        name = _counter.sub("", step_id) or step_id
    attempts = _value(op, "max_attempts")
    return _Step(
        id=step_id,
        name=cut(storable(name), _NAME_BYTES),
        duration_ms=_took(_value(op, "duration_ms")),
        input=_input(op),
        max_attempts=attempts if _is_integer(attempts) and attempts in _ATTEMPTS else None,
    )


def _input(op: Members) -> str | None:
    """The arguments of a `step.run` for the timeline, None where they are absent or too long for it."""
    member = op.get("input")
    return member.text if member is not None and utf8_size(member.text) <= _INPUT_BYTES else None


def _step_completed(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    return StepCompleted(**step, output=_payload(op, "output", "null", limits.output_bytes))


def _step_failed(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    after_ms, at_ms, warning = _retry_after(op)
    if "max_attempts" in op and step["max_attempts"] is None and _value(op, "max_attempts") is not None:
        ignored = (
            f"max_attempts {_shown(op, 'max_attempts')} is ignored: "
            f"an integer from {_ATTEMPTS[0]} to {_ATTEMPTS[-1]} is allowed"
        )
        warning = ignored if warning is None else f"{warning}; {ignored}"
    return StepFailed(
        **step,
        error=_error(op),
        non_retriable=_flag(op, "non_retriable"),
        retry_after_ms=after_ms,
        retry_at_ms=at_ms,
        warning=warning,
    )


def _sleep(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    for_ms, until_ms = _parsed(op, "duration", parse_duration), _parsed(op, "until", parse_time)
    if (for_ms is None) == (until_ms is None):
        raise _BadField(f"exactly one of duration and until is needed, got {'none' if for_ms is None else 'both'}")
    return Sleep(**step, for_ms=for_ms, until_ms=until_ms)


def _wait_for_event(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    return WaitForEvent(
        **step,
        event=_event_to_wait_for(op),
        condition=_condition(op),
        timeout_ms=_timeout(op),
        lookback_ms=_SINCE_START if _value(op, "lookback") == "run" else _parsed(op, "lookback", parse_duration),
    )


def _invoke(op: Members, step: _Step, limits: AnswerLimits) -> StepOp:
    workflow = _value(op, "workflow")
    if not isinstance(workflow, str) or not _workflow_name(workflow):
        raise _BadField(
            f"workflow {_shown(op, 'workflow')} is not a workflow's name: 1 to 100 letters, digits and . _ -, "
            "a letter or digit first"
        )
    data = _payload(op, "data", "{}", limits.output_bytes)
    if not isinstance(_value(op, "data"), dict | None):
        raise _BadField(f"data {_shown(op, 'data')} is not a JSON object")
    return Invoke(**step, workflow=workflow, data=data, timeout_ms=_timeout(op))


def _run_completed(op: Members, limits: AnswerLimits) -> Op:
    try:
        return RunCompleted(output=_payload(op, "output", "null", limits.output_bytes))
    except _BadField as fault:
        return RunFailed(error=OpError(fault.name, f"run_completed: {fault}"), non_retriable=True)


def _run_failed(op: Members) -> Op:
    after_ms, at_ms, warning = _retry_after(op)
    return RunFailed(
        error=_error(op),
        non_retriable=_flag(op, "non_retriable"),
        retry_after_ms=after_ms,
        retry_at_ms=at_ms,
        warning=warning,
    )


def _value(op: Members, field: str) -> Any:
    """The decoded value of a field; None where it is absent."""
    member = op.get(field)
    return None if member is None else member.value


def _shown(op: Members, field: str) -> str:
    """The field's value for a message: as the function wrote it, not too much of it."""
    member = op.get(field)
    if member is None:
        return "(missing)"
    return member.text if len(member.text) <= _SHOWN else member.text[:_SHOWN] + "…"


def _parsed(op: Members, field: str, parse: Callable[[Any], int]) -> int | None:
    """The field as `parse` reads it, None where it is absent or null."""
    value = _value(op, field)
    if value is None:
        return None
    try:
        return parse(value)
    except DomainError as error:
        raise _BadField(f"{field} {_shown(op, field)}: {error.message}") from error


def _timeout(op: Members) -> int | None:
    timeout_ms = _parsed(op, "timeout", parse_duration)
    if timeout_ms == 0:
        raise _BadField(f"timeout {_shown(op, 'timeout')}: must be longer than zero")
    return timeout_ms


def _payload(op: Members, field: str, default: str, limit: int) -> str:
    """The JSON text of the field, byte for byte; `default` where it is absent."""
    member = op.get(field)
    if member is None:
        return default
    size = utf8_size(member.text)
    if size > limit:
        raise _BadField(f"{field} has {size} bytes, {limit} are allowed", "TooLarge")
    if deeper_than(member.text, MAX_DEPTH):
        raise _BadField(f"{field} is nested deeper than {MAX_DEPTH} levels", "TooLarge")
    return member.text


def _condition(op: Members) -> str | None:
    """`match` and `if` as one expression; both must hold where both are given."""
    match = _expression(op, "match", expression.match_expression)
    given = _expression(op, "if", _checked)
    if match is None or given is None:
        return match or given
    both = f"({match}) && ({given})"
    try:
        return _checked(both)
    except DomainError as error:
        raise _BadField(f"match and if together: {error.message}") from error


def _expression(op: Members, field: str, read: Callable[[str], str]) -> str | None:
    value = _value(op, field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _BadField(f"{field} {_shown(op, field)} is not a text")
    try:
        return read(value)
    except DomainError as error:
        raise _BadField(f"{field} {_shown(op, field)}: {error.message}") from error


def _checked(text: str) -> str:
    expression.parse(text)
    return text


def _retry_after(op: Members) -> tuple[int | None, int | None, str | None]:
    """`(delay in ms, unix ms, warning)`: at most one of the first two is set; a value that is neither is ignored."""
    value = _value(op, "retry_after")
    if value is None:
        return None, None, None
    try:
        return parse_duration(value), None, None
    except DomainError as error:
        not_a_duration = error
    try:
        return None, parse_time(value), None
    except DomainError:
        warning = f"retry_after {_shown(op, 'retry_after')} is ignored: {not_a_duration.message}"
        return None, None, cut(storable(warning), _MESSAGE_BYTES)


def _error(op: Members) -> OpError:
    value = _value(op, "error")
    if isinstance(value, str):
        value = {"message": value}
    if not isinstance(value, dict):
        _refuse(f"error {_shown(op, 'error')} is neither an object nor a text")
    name, message, stack = value.get("name"), value.get("message"), value.get("stack")
    return OpError(
        name=cut(storable(name), _NAME_BYTES) if isinstance(name, str) and name.strip() else "Error",
        message=cut(storable(_as_text(message)), _MESSAGE_BYTES),
        stack=cut(storable(stack), _STACK_BYTES) if isinstance(stack, str) else None,
    )


def _as_text(message: Any) -> str:
    if message is None:
        return ""
    return message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)


def _flag(op: Members, field: str) -> bool:
    value = _value(op, field)
    if value is not None and not isinstance(value, bool):
        _refuse(f"{field} {_shown(op, field)} is not true or false")
    return bool(value)


def _took(value: Any) -> int | None:
    """A duration for the timeline; what is not one is no reason to refuse the step."""
    if isinstance(value, float) and math.isfinite(value):
        value = round(value)
    return value if _is_integer(value) and 0 <= value <= _LONGEST_MS else None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse(message: str) -> NoReturn:
    raise FunctionFault("ProtocolError", cut(storable(message), _MESSAGE_BYTES))


_STEP_KINDS = {
    "step_completed": _StepKind("run", _step_completed),
    "step_failed": _StepKind("run", _step_failed),
    "sleep": _StepKind("sleep", _sleep),
    "wait_for_event": _StepKind("wait_for_event", _wait_for_event),
    "invoke": _StepKind("invoke", _invoke),
    "send_event": _StepKind("send_event", _send_event),
}
