"""Rules about what a function may say that it can: several ops in one answer, dry requests (protocol section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from services.cli.conformance.execution import Execution
from services.cli.conformance.kind_rules import STEP_ID
from services.cli.conformance.probe import Probe
from services.cli.conformance.replay_rules import field_of, is_step
from services.cli.conformance.rule import Broken, Rule
from services.cli.conformance.workflows import KINDS, REPLAY
from services.cli.dry_run import Dry, read_dry
from services.core.domain.op import FunctionFault, RunCompleted, StepCompleted

MAX_OPS = "max_ops"
DRY = "dry"

_PAUSE_MS = 200


async def _several(probe: Probe) -> None:
    answered = await probe.execute(replace(Execution.of(REPLAY), max_ops=10), "max_ops is 10, nothing is memoized")
    ids = [op.id for op in answered.ops if isinstance(op, StepCompleted)]
    answered.expect(
        ids == ["first", "second"][: len(ids)] and bool(ids), "the steps in their order, first of all first"
    )
    if not isinstance(answered.op, RunCompleted):
        return
    answered.expect(len(ids) == 2, "first and second before run_completed")
    first, second = (op.get("output") for op in answered.written[:2])
    answered.expect(
        field_of(answered, "first") == first and field_of(answered, "second") == second,
        "a run_completed in which the steps have the results of the same answer",
    )


async def _at_most(probe: Probe) -> None:
    answered = await probe.execute(replace(Execution.of(REPLAY), max_ops=2), "max_ops is 2, and there is more to do")
    answered.expect(len(answered.ops) <= 2, "at most 2 ops")
    answered = await probe.execute(replace(Execution.of(REPLAY), max_ops=1), "max_ops is 1")
    answered.expect(len(answered.ops) == 1 and is_step(answered, "first"), "step_completed of first alone")


async def _budget(probe: Probe) -> None:
    run = replace(Execution.of(REPLAY, pause_ms=_PAUSE_MS), max_ops=10, budget_ms=_PAUSE_MS // 4)
    answered = await probe.execute(run, f"budget_ms is {run.budget_ms}, the body of each step takes {_PAUSE_MS} ms")
    answered.expect(len(answered.ops) == 1 and is_step(answered, "first"), "step_completed of first alone")


async def _attempt(probe: Probe) -> None:
    run = replace(Execution.of(REPLAY), max_ops=10, attempt=2)
    answered = await probe.execute(run, "max_ops is 10 and run.attempt is 2")
    outputs = [op.get("output") for op in answered.written if op.get("op") == "step_completed"]
    seen = [output.get("attempt") if isinstance(output, dict) else None for output in outputs]
    answered.expect(seen == [2, 0][: len(seen)] and bool(seen), "run.attempt 2 for first, and none for what follows it")


async def _runs_nothing(probe: Probe) -> None:
    dry, seen = await _dry(probe, Execution.of(REPLAY), "nothing is memoized")
    _expect(dry.would_run == ("first", "run") and not dry.called, seen, "would_run of first, a run, and nothing called")
    run = Execution.of(REPLAY).completed("first", "1")
    dry, seen = await _dry(probe, run, "first is memoized")
    _expect(dry.would_run == ("second", "run"), seen, "would_run of second, a run")
    _expect(dry.called == (("first", "run"),), seen, "first, a run, in called")
    dry, seen = await _dry(probe, run.completed("second", "2"), "both steps are memoized")
    _expect(dry.ends == "run_completed", seen, "run_completed")
    _expect(dry.called == (("first", "run"), ("second", "run")), seen, "first and second in called")


async def _dry_kinds(probe: Probe) -> None:
    asked: dict[str, Mapping[str, Any]] = {
        "sleep": {"kind": "sleep", "duration": "1h"},
        "wait_for_event": {"kind": "wait_for_event", "event": "order.shipped"},
        "invoke": {"kind": "invoke", "workflow": "conformance-child", "data": {}},
        "send_event": {"kind": "send_event", "events": [{"name": "order.told"}]},
    }
    for kind, data in asked.items():
        dry, seen = await _dry(probe, Execution.of(KINDS, **data), f"a step of the kind {kind}")
        _expect(dry.would_run == (STEP_ID, kind), seen, f"would_run of {STEP_ID}, of the kind {kind}")


async def _dry(probe: Probe, run: Execution, about: str) -> tuple[Dry, tuple[str, str]]:
    """What a dry request is answered with, and what was sent and came, for a report."""
    post = probe.execute_post(replace(run, extra={"dry": "true"}), f"a dry request, {about}")
    reply = await probe.send(post)
    try:
        return read_dry(reply.status, reply.body), (post.shown(), reply.shown())
    except FunctionFault as fault:
        raise Broken(post.shown(), "the answer to a dry request", f"{reply.shown()} ({fault})") from fault


def _expect(holds: bool, seen: tuple[str, str], expected: str) -> None:
    if not holds:
        raise Broken(seen[0], expected, seen[1])


RULES = (
    Rule("max-ops-several", 4, _several, REPLAY, MAX_OPS),
    Rule("max-ops-at-most", 4, _at_most, REPLAY, MAX_OPS),
    Rule("max-ops-budget", 4, _budget, REPLAY, MAX_OPS),
    Rule("max-ops-attempt", 4, _attempt, REPLAY, MAX_OPS),
    Rule("dry-runs-nothing", 4, _runs_nothing, REPLAY, DRY),
    Rule("dry-kinds", 4, _dry_kinds, KINDS, DRY),
)
"""In the order in which they are checked."""
