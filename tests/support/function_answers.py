"""Answers of functions as bytes, and what is read of them: an op, a fault, or a step that its author got wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from services.core.domain.function_answer import parse_answer
from services.core.domain.op import BadStep, FunctionFault, Op


@dataclass(frozen=True)
class Limits:
    output_bytes: int = 1 << 20
    event_bytes: int = 256 << 10
    step_id_bytes: int = 200


LIMITS = Limits()


def answer(*ops: str) -> bytes:
    return f'{{"runr_workflow":"v1","ops":[{",".join(ops)}]}}'.encode()


def read(op: dict[str, Any] | str) -> Op:
    """The one op of an answer, given decoded or as its text."""
    text = op if isinstance(op, str) else json.dumps(op)
    (parsed,) = parse_answer(200, answer(text), limits=LIMITS)
    return parsed


def fault(body: bytes, *, status: int = 200, max_ops: int = 1) -> FunctionFault:
    with pytest.raises(FunctionFault) as raised:
        parse_answer(status, body, limits=LIMITS, max_ops=max_ops)
    raised.value.message.encode()
    assert "\0" not in raised.value.message
    return raised.value


def bad_step(op: dict[str, Any]) -> BadStep:
    """The step that an author's fault ends as; its message must name step and op."""
    parsed = read({"id": "s", **op})
    assert isinstance(parsed, BadStep)
    assert parsed.error.message.startswith(f'{op["op"]} "s": ')
    return parsed
