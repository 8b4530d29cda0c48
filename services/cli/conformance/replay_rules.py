"""Rules about replay: what is run, what is recalled, what is answered (protocol sections 3, 4 and 7)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from services.cli.conformance.execution import Execution
from services.cli.conformance.probe import Answered, Probe
from services.cli.conformance.rule import Rule
from services.cli.conformance.workflows import NESTED, REPLAY, SWALLOW, TOGETHER
from services.core.domain.op import RunCompleted, RunFailed, StepCompleted, StepFailed

_STORED = '{"stored":["what the body","would not return",null,{}],"n":1.5}'


def output_of(answered: Answered) -> Any:
    """The decoded output of the last op."""
    return answered.written[-1].get("output")


def field_of(answered: Answered, name: str) -> Any:
    """A field of that output; an Ellipsis, which equals nothing of JSON, where there is none."""
    output = output_of(answered)
    return output.get(name, ...) if isinstance(output, dict) else ...


def is_step(answered: Answered, step_id: str) -> bool:
    """Whether the last op is the result of this step."""
    return isinstance(answered.op, StepCompleted) and answered.op.id == step_id


async def _first_step(probe: Probe) -> None:
    run = Execution.of(REPLAY)
    answered = await probe.execute(run, "a run without results")
    answered.expect(is_step(answered, "first"), "step_completed of first, the first step call without a result")
    written = answered.written[0]
    answered.expect(written.get("name", "first") == "first", 'the name "first", or none')
    answered.expect(field_of(answered, "executed") == ["first"], 'an output with "executed": ["first"]')
    answered = await probe.execute(run, "the same run without results, once more")
    answered.expect(
        is_step(answered, "first") and field_of(answered, "executed") == ["first"],
        "step_completed of first as before: what is not in the request is not known",
    )


async def _not_run_again(probe: Probe) -> None:
    run = Execution.of(REPLAY).completed("first", _STORED)
    answered = await probe.execute(run, "the result of first is stored")
    answered.expect(is_step(answered, "second"), "step_completed of second")
    answered.expect(
        field_of(answered, "executed") == ["second"],
        'an output with "executed": ["second"]: the body of first, which is memoized, is not run again',
    )
    answered = await probe.execute(run.completed("second", "2"), "the results of both steps are stored")
    answered.expect(
        isinstance(answered.op, RunCompleted) and field_of(answered, "executed") == [],
        'run_completed with "executed": []: no body of a memoized step is run again',
    )


async def _as_stored(probe: Probe) -> None:
    for stored in (_STORED, "{}", "[]", "null", '""', "false", "0"):
        run = Execution.of(REPLAY).completed("first", stored).completed("second", '"2"')
        answered = await probe.execute(run, f"the stored result of first is {stored}")
        answered.expect(isinstance(answered.op, RunCompleted), "run_completed")
        answered.expect(
            _equal(field_of(answered, "first"), json.loads(stored)) and field_of(answered, "second") == "2",
            f'an output with "first": {stored}, as it is stored',
        )


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, where true is not 1."""
    return type(one) is type(other) and bool(one == other)


async def _attempt(probe: Probe) -> None:
    for attempt in (0, 2):
        run = replace(Execution.of(REPLAY), attempt=attempt)
        answered = await probe.execute(run, f"run.attempt is {attempt}")
        answered.expect(field_of(answered, "attempt") == attempt, f'an output with "attempt": {attempt}')


async def _unknown_step(probe: Probe) -> None:
    run = Execution.of(REPLAY).completed("from-older-code", '"x"').completed("first", "1")
    answered = await probe.execute(run, "a memoized step that the code does not call any more")
    answered.expect(is_step(answered, "second"), "step_completed of second: the code may have changed")


async def _unknown_fields(probe: Probe) -> None:
    run = replace(Execution.of(REPLAY), extra={"future": '{"a":[1]}', "max_parties": "7"})
    answered = await probe.execute(run, "an execute request with fields that nobody knows")
    answered.expect(is_step(answered, "first"), "step_completed of first")


async def _swallowed(probe: Probe, *, then: str) -> None:
    about = f"the workflow catches what it can around each step call, and then: {then}"
    answered = await probe.execute(Execution.of(SWALLOW, then=then), about)
    answered.expect(is_step(answered, "first"), "step_completed of first, whatever the code does after that call")
    answered = await probe.execute(Execution.of(SWALLOW, then=then).completed("first", "1"), about)
    if then == "step":
        answered.expect(is_step(answered, "second"), "step_completed of second")
    elif then == "return":
        answered.expect(isinstance(answered.op, RunCompleted), "run_completed")
    else:
        answered.expect(isinstance(answered.op, RunFailed), "run_failed")


async def _nested(probe: Probe) -> None:
    answered = await probe.execute(Execution.of(NESTED), "a step call inside the body of another step")
    op = answered.op
    answered.expect(
        isinstance(op, RunFailed | StepFailed)
        and op.non_retriable
        and "outer" in op.error.message
        and "inner" in op.error.message,
        "run_failed, or step_failed, that is non_retriable and whose message names both steps, outer and inner",
    )


async def _together(probe: Probe) -> None:
    run = Execution.of(TOGETHER)
    for step_id in ("a", "b", "c"):
        answered = await probe.execute(run, "steps a, b and c that are started together")
        answered.expect(is_step(answered, step_id), f"step_completed of {step_id}: one after another, in call order")
        run = run.completed(step_id, json.dumps(step_id))
    answered = await probe.execute(run, "all results are stored")
    answered.expect(output_of(answered) == ["a", "b", "c"], 'run_completed with the output ["a","b","c"]')


RULES = (
    Rule("replay-first-step", 7, _first_step, REPLAY),
    Rule("replay-memoized-not-run-again", 7, _not_run_again, REPLAY),
    Rule("replay-results-as-stored", 7, _as_stored, REPLAY),
    Rule("replay-attempt", 4, _attempt, REPLAY),
    Rule("replay-steps-not-called", 3, _unknown_step, REPLAY),
    Rule("replay-unknown-fields", 4, _unknown_fields, REPLAY),
    Rule("interrupt-swallowed-then-step", 7, partial(_swallowed, then="step"), SWALLOW),
    Rule("interrupt-swallowed-then-return", 7, partial(_swallowed, then="return"), SWALLOW),
    Rule("interrupt-swallowed-then-error", 7, partial(_swallowed, then="raise"), SWALLOW),
    Rule("steps-nested", 7, _nested, NESTED),
    Rule("steps-together", 7, _together, TOGETHER),
)
"""In the order in which they are checked."""
