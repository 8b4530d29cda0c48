"""The Python SDK as the engine meets it: signed requests made by the engine's own code, answers read by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from runr_workflows import Context, Step, Workflows

from services.core.domain.envelope import EventInfo, RunInfo, StepsFragment, execute_request, seal
from services.core.domain.signature import signature_header

_KEY = "wfsk_test_vectors"
_NOW = 1_700_000_000

Body = Callable[[Context, Step], Any]


def invoke(body: Body, steps: str = "", order: str = "") -> dict[str, Any]:
    """The op of one invocation; `steps` and `order` are the inner texts of the request's members."""
    workflows = Workflows(signing_key=_KEY, signing_key_fallback="", clock=lambda: float(_NOW))
    workflows.workflow("w")(body)
    request = execute_request(
        workflow="w",
        run=RunInfo(id="01J0000000000000000000000A", attempt=0, started_at=_NOW * 1000, source="api"),
        event=EventInfo(id="01J0000000000000000000000B", name="a", data="{}", ts=_NOW * 1000),
        steps_fragment=steps,
        order_fragment=order,
        ts=_NOW,
    )
    header = signature_header([_KEY], _NOW, request)
    status, answer = workflows.handle_request(seal(request, header), {"x-runr-signature": header})
    assert status == 200, answer
    (op,) = json.loads(answer)["ops"]
    return dict(op)


def invoke_with(body: Body, memo: Mapping[str, Any]) -> dict[str, Any]:
    """The op of one invocation with these memoized steps, whatever they look like."""
    return invoke(body, json.dumps(memo)[1:-1], json.dumps(list(memo))[1:-1])


def run_to_end(body: Body, most: int = 100) -> list[dict[str, Any]]:
    """All ops until the run ends, each step memoized as completed with its output (null for other steps)."""
    steps = StepsFragment()
    ops: list[dict[str, Any]] = []
    while len(ops) < most:
        op = invoke(body, steps.steps, steps.order)
        ops.append(op)
        if op["op"] in ("run_completed", "run_failed"):
            return ops
        assert op["id"] not in steps.ids, f"step {op['id']!r} was answered twice"
        output = {"ids": ["01J0000000000000000000000C"]} if op["op"] == "send_event" else op.get("output")
        steps.completed(op["id"], json.dumps(output))
    raise AssertionError(f"the run did not end within {most} invocations")
