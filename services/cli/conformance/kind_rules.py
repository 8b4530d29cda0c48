"""Rules about the kinds of steps that the engine carries out (protocol section 3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.cli.conformance.execution import Execution
from services.cli.conformance.probe import Probe
from services.cli.conformance.replay_rules import output_of
from services.cli.conformance.rule import Rule
from services.cli.conformance.workflows import KINDS
from services.core.domain.op import Invoke, Op, RunCompleted, SendEvent, Sleep, WaitForEvent

STEP_ID = "it"

_UNTIL = "2030-01-02T03:04:05Z"
_UNTIL_MS = 1_893_553_445_000
_EVENT = {"id": "01J00000000000000000000009", "name": "order.shipped", "data": {"by": "sea"}, "ts": 1_760_000_000_001}


@dataclass(frozen=True, slots=True)
class _Case:
    """A step call: what the event's data asks for, what the op must be, and a result that the engine would store."""

    data: Mapping[str, Any]
    expected: str
    holds: Callable[[Op], bool]
    result: Any


def _is_sleep(op: Op) -> bool:
    return isinstance(op, Sleep) and op.for_ms == 5_400_000


def _is_sleep_until(op: Op) -> bool:
    return isinstance(op, Sleep) and op.until_ms == _UNTIL_MS


def _is_wait(op: Op) -> bool:
    return (
        isinstance(op, WaitForEvent)
        and op.event == "order.shipped"
        and op.condition is not None
        and "data.order_id" in op.condition
        and op.timeout_ms == 259_200_000
        and op.lookback_ms == -1
    )


def _is_bare_wait(op: Op) -> bool:
    return isinstance(op, WaitForEvent) and (op.condition, op.timeout_ms, op.lookback_ms) == (None, None, None)


def _is_invoke(op: Op) -> bool:
    return (
        isinstance(op, Invoke)
        and op.workflow == "conformance-child"
        and json.loads(op.data) == {"n": 1, "of": ["a", None]}
        and op.timeout_ms == 3_600_000
    )


def _is_send(op: Op) -> bool:
    if not isinstance(op, SendEvent) or len(op.events) != 2:
        return False
    first, second = op.events
    return (first.name, json.loads(first.data), first.id) == ("order.done", {"n": 1}, "done-1") and (
        second.name,
        json.loads(second.data),
        second.id,
    ) == ("order.told", {}, None)


_CASES = {
    "sleep": _Case({"kind": "sleep", "duration": "1h30m"}, "sleep with a duration of 1h30m", _is_sleep, None),
    "sleep-until": _Case({"kind": "sleep_until", "until": _UNTIL}, f"sleep until {_UNTIL}", _is_sleep_until, None),
    "wait-for-event": _Case(
        {
            "kind": "wait_for_event",
            "event": "order.shipped",
            "match": "data.order_id",
            "timeout": "3d",
            "lookback": "run",
        },
        "wait_for_event of order.shipped with the match, a timeout of 3d and the lookback run",
        _is_wait,
        _EVENT,
    ),
    "wait-for-event-bare": _Case(
        {"kind": "wait_for_event", "event": "order.shipped"},
        "wait_for_event of order.shipped without match, timeout and lookback",
        _is_bare_wait,
        None,
    ),
    "invoke": _Case(
        {"kind": "invoke", "workflow": "conformance-child", "data": {"n": 1, "of": ["a", None]}, "timeout": "1h"},
        "invoke of conformance-child with the data and a timeout of 1h",
        _is_invoke,
        {"child": ["output", 1]},
    ),
    "send-event": _Case(
        {
            "kind": "send_event",
            "events": [{"name": "order.done", "data": {"n": 1}, "id": "done-1"}, {"name": "order.told"}],
        },
        "send_event of order.done, with its id, and order.told",
        _is_send,
        {"ids": ["done-1", "01J00000000000000000000010"]},
    ),
}


async def _kind(probe: Probe, *, case: _Case) -> None:
    run = Execution.of(KINDS, **case.data)
    answered = await probe.execute(run, f"a step of the kind {case.data['kind']}")
    op = answered.op
    answered.expect(getattr(op, "id", None) == STEP_ID, f"an op of the step {STEP_ID}")
    answered.expect(case.holds(op), case.expected)
    answered = await probe.execute(run.completed(STEP_ID, json.dumps(case.result)), "the result is stored")
    expected = {"result": case.result}
    answered.expect(
        isinstance(answered.op, RunCompleted) and output_of(answered) == expected,
        f"run_completed with the output {json.dumps(expected)}",
    )


async def _failed_invoke(probe: Probe) -> None:
    run = Execution.of(KINDS, **_CASES["invoke"].data).failed(STEP_ID, "InvokeTimeout", "the child took too long")
    answered = await probe.execute(run, "the invoke has failed for good, and the workflow catches that")
    seen = {"error": {"name": "InvokeTimeout", "message": "the child took too long", "step_id": STEP_ID}}
    answered.expect(
        isinstance(answered.op, RunCompleted) and output_of(answered) == seen,
        f"run_completed with the output {json.dumps(seen)}",
    )


RULES = (
    *(Rule(f"kind-{name}", 3, partial(_kind, case=case), KINDS) for name, case in _CASES.items()),
    Rule("kind-invoke-failed", 3, _failed_invoke, KINDS),
)
"""In the order in which they are checked."""
