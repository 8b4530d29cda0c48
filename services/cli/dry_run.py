"""What a dry request is answered with (protocol section 4): which steps the code called, and what it would do next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.core.domain.envelope import PROTOCOL
from services.core.domain.function_answer import http_fault
from services.core.domain.op import FunctionFault

KINDS = ("run", "sleep", "wait_for_event", "invoke", "send_event")
"""The kinds of steps, as a dry answer and the API name them."""

StepCall = tuple[str, str]
"""The id of a step and its kind."""

_ENDS = ("would_run", "run_completed", "run_failed")


@dataclass(frozen=True, slots=True)
class Dry:
    """`called`: the memoized steps that the code called, in order. `ends` is the op that it came to; `would_run` is the
    step of that, `error` the name and message of a run_failed.
    """

    called: tuple[StepCall, ...]
    ends: str
    would_run: StepCall | None = None
    error: str | None = None


def read_dry(status: int, body: bytes) -> Dry:
    """The answer to a dry request. Raises FunctionFault."""
    if status != 200:
        raise http_fault(status, body)
    answer = _object(body)
    if "statusCode" in answer and "runr_workflow" not in answer:
        answer = _unwrapped(answer)
    ops, called = answer.get("ops"), answer.get("called")
    if answer.get("runr_workflow") != PROTOCOL or not isinstance(ops, list) or len(ops) != 1:
        raise FunctionFault("ProtocolError", "a dry request is answered with exactly one op")
    if not isinstance(called, list):
        raise FunctionFault("ProtocolError", 'the answer to a dry request has no list "called"')
    op = ops[0]
    word = op.get("op") if isinstance(op, dict) else None
    if word not in _ENDS:
        raise FunctionFault("ProtocolError", f"{word!r:.40} is not among {', '.join(_ENDS)}")
    return Dry(
        tuple(map(_call, called)),
        word,
        _call(op) if word == "would_run" else None,
        _error(op.get("error")) if word == "run_failed" else None,
    )


def _unwrapped(wrapping: Mapping[str, Any]) -> dict[str, Any]:
    """The answer proper, taken out of what a runtime left around it (protocol section 2)."""
    status, inner = wrapping["statusCode"], wrapping.get("body")
    text = inner if isinstance(inner, str) else json.dumps(inner)
    if not isinstance(status, int):
        raise FunctionFault("ProtocolError", f"statusCode {status!r:.40} is not an HTTP status")
    if status != 200:
        raise http_fault(status, text.encode(errors="replace"))
    return _object(text)


def _object(text: bytes | str) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FunctionFault("ProtocolError", f"the answer is not JSON: {error}") from None
    if not isinstance(answer, dict):
        raise FunctionFault("ProtocolError", "the answer is not an object")
    return answer


def _call(value: Any) -> StepCall:
    step_id = value.get("id") if isinstance(value, Mapping) else None
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(step_id, str) or kind not in KINDS:
        raise FunctionFault(
            "ProtocolError", f"a step of a dry answer has an id and one of the kinds {', '.join(KINDS)}"
        )
    return step_id, kind


def _error(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('name') or 'Error'}: {value.get('message') or ''}"
    return str(value)
