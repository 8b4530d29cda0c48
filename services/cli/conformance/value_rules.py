"""Rules about outputs: what JSON holds comes back, what it cannot hold is refused (protocol sections 3 and 7)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from services.cli.conformance.execution import Execution
from services.cli.conformance.probe import Probe
from services.cli.conformance.replay_rules import field_of, output_of
from services.cli.conformance.rule import Rule
from services.cli.conformance.workflows import VALUES
from services.core.domain.op import RunCompleted, RunFailed, StepCompleted, StepFailed

STEP_ID = "value"

_DEPTH = 100
_LARGE = 512 * 1024

_TEXTS = ["", "é 中 😀", "a\u0000b", "\u001f\u007f", '"\\/', "\u2028\u2029", "</script>", "e\u0301", "\ufeff"]
_PLAIN: list[Any] = [{}, [], "", None, False, True, 0, -1, {"a": {"": []}}, [[], [{}]]]
_NUMBERS = [0, -1, 2**53 - 1, -(2**53) + 1, 0.1, 1.5, 1e21, 1e-7, 1.7976931348623157e308, 5e-324]
_BIG = [2**53 + 1, 2**63, 2**64 - 1, 10**30]


async def _echo(probe: Probe, *, value: Any) -> None:
    await _echo_text(probe, json.dumps(value, ensure_ascii=False), lambda got: _same(got, value))


async def _echo_text(probe: Probe, text: str, holds: Any) -> None:
    """A value is given to a step as JSON text, and answered; then it is memoized, and answered by the workflow."""
    run = Execution(workflow=VALUES, data=f'{{"make":"echo","value":{text}}}')
    answered = await probe.execute(run, "a step that returns the value of the event's data")
    answered.expect(
        isinstance(answered.op, StepCompleted) and holds(output_of(answered)), "step_completed with that value"
    )
    run = run.completed(STEP_ID, text)
    answered = await probe.execute(run, "the value is memoized, and the workflow returns it")
    answered.expect(
        isinstance(answered.op, RunCompleted) and holds(field_of(answered, "value")),
        'run_completed with that value as "value"',
    )


async def _big_numbers(probe: Probe) -> None:
    await _echo_text(probe, json.dumps(_BIG), lambda got: isinstance(got, list) and all(map(_near, got, _BIG)))


async def _surrogates(probe: Probe) -> None:
    allowed = ("a\ud800b", "a\ufffdb")
    await _echo_text(probe, '"a\\ud800b"', lambda got: got in allowed)


async def _nothing(probe: Probe) -> None:
    answered = await probe.execute(Execution.of(VALUES, make="nothing"), "a step whose body returns nothing")
    answered.expect(
        isinstance(answered.op, StepCompleted) and output_of(answered) is None, "step_completed with null, or no output"
    )


async def _refused(probe: Probe, *, make: str, where: str) -> None:
    about = f"the {where} returns {make}, which JSON cannot hold"
    run = Execution.of(VALUES, make=make, where=where)
    answered = await probe.execute(run, about)
    op = answered.op
    kind, word = (StepFailed, "step_failed") if where == "step" else (RunFailed, "run_failed")
    answered.expect(
        isinstance(op, kind) and op.non_retriable and bool(op.error.message),
        f"{word} that is non_retriable, with a message: it does not become null",
    )


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same to JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(other, dict):
        return (
            isinstance(one, dict) and one.keys() == other.keys() and all(_same(one[key], other[key]) for key in other)
        )
    if isinstance(other, list):
        return isinstance(one, list) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(other, bool) or other is None:
        return one is other
    return not isinstance(one, bool) and bool(one == other)


def _near(one: Any, other: int) -> bool:
    """Whether a number is this one, or the double that is nearest to it."""
    return not isinstance(one, bool) and isinstance(one, int | float) and (one == other or float(one) == float(other))


def _nested(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    return value


_ECHOES: tuple[tuple[str, Any], ...] = (
    ("output-plain", _PLAIN),
    ("output-texts", _TEXTS),
    ("output-numbers", _NUMBERS),
    ("output-keys", {key: index for index, key in enumerate([*_TEXTS[1:5], "", "__proto__", "toString", "1"])}),
    ("output-deep", _nested(_DEPTH)),
    ("output-large", "x" * _LARGE),
)

RULES = (
    *(Rule(name, 3, partial(_echo, value=value), VALUES) for name, value in _ECHOES),
    Rule("output-big-numbers", 3, _big_numbers, VALUES),
    Rule("output-lone-surrogate", 3, _surrogates, VALUES),
    Rule("output-nothing", 3, _nothing, VALUES),
    Rule("output-nan", 7, partial(_refused, make="nan", where="step"), VALUES),
    Rule("output-infinity", 7, partial(_refused, make="infinity", where="step"), VALUES),
    Rule("output-unserializable", 7, partial(_refused, make="unserializable", where="step"), VALUES),
    Rule("output-of-workflow-nan", 7, partial(_refused, make="nan", where="workflow"), VALUES),
)
"""In the order in which they are checked."""
