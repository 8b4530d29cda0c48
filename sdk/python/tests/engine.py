"""A stand-in for the engine: signs requests, applies the ops that come back, and keeps the history.

It drives an SDK through its one door, `handle_request`, in memory; what it knows is protocol v1 and nothing of the SDK.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

KEY = "wfsk_test_0123456789abcdef0123456789abcdef012345"
NOW = 1_700_000_000
RUN_ID = "01J00000000000000000000000"
EVENT = {"id": "01J00000000000000000000001", "name": "order.created", "data": {"order_id": "o-1"}, "ts": NOW * 1000}

Handle = Callable[[bytes, Mapping[str, str]], tuple[int, bytes]]


def signature(request: str, *, key: str = KEY, t: int = NOW) -> str:
    """The value of X-RunR-Signature."""
    return f"t={t},v1={hmac.new(key.encode(), f'{t}.{request}'.encode(), hashlib.sha256).hexdigest()}"


def envelope(request: str, *, key: str = KEY, t: int = NOW) -> bytes:
    """A signed body."""
    return json.dumps(
        {"runr_workflow": "v1", "signature": signature(request, key=key, t=t), "request": request}
    ).encode()


def execute_request(
    workflow: str,
    steps: Mapping[str, Any] | None = None,
    *,
    attempt: int = 0,
    event: Mapping[str, Any] = EVENT,
    **more: Any,
) -> str:
    """The text of an execute request; `more` are further fields of it, as of a newer engine."""
    steps = steps or {}
    run = {
        "id": RUN_ID,
        "attempt": attempt,
        "started_at": "2026-10-10T10:00:00.000Z",
        "source": "event",
        "replay": False,
        "test": True,
        "parent_run_id": None,
    }
    request = {"type": "execute", "protocol": "v1", "ts": NOW, "workflow": workflow, "run": run, "event": event}
    return json.dumps({**request, "steps": steps, "step_order": list(steps), **more})


@dataclass
class Run:
    """What the engine has stored of a run. `ops` are all ops in the order of their arrival, `answers` how many they
    came in, those that were lost among them.
    """

    ops: list[dict[str, Any]] = field(default_factory=list)
    answers: int = 0
    steps: dict[str, Any] = field(default_factory=dict)
    status: str = "running"
    output: Any = None
    error: dict[str, Any] | None = None

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """(op, id) of every op of a step."""
        return [(op["op"], op["id"]) for op in self.ops if "id" in op]


class FakeEngine:
    """Runs workflows to their end. `answers` gives what waits and invokes memoize, by step id (default null)."""

    def __init__(self, handle: Handle, *, retries: int = 3, answers: Mapping[str, Any] | None = None) -> None:
        self._handle = handle
        self._retries = retries
        self._answers = answers or {}

    def introspect(self) -> dict[str, Any]:
        """The introspect answer."""
        request = json.dumps({"type": "introspect", "protocol": "v1", "ts": NOW})
        status, body = self._handle(envelope(request), {})
        assert status == 200, body
        answer: dict[str, Any] = json.loads(body)
        return answer

    def execute(self, workflow: str, steps: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """The op of one invocation."""
        (op,) = self.answer(workflow, steps, **fields)
        return op

    def answer(self, workflow: str, steps: Mapping[str, Any] | None = None, **fields: Any) -> list[dict[str, Any]]:
        """All ops of one invocation; more than one only where `max_ops` is among the fields."""
        status, body = self._handle(envelope(execute_request(workflow, steps, **fields)), {})
        assert status == 200, body
        answer = json.loads(body)
        assert answer["runr_workflow"] == "v1"
        ops: list[dict[str, Any]] = answer["ops"]
        assert 1 <= len(ops) <= fields.get("max_ops", 1)
        assert all(op["op"] == "step_completed" for op in ops[:-1]), "only results may be followed by another op"
        return ops

    def run(
        self, workflow: str, *, most: int = 100, loses: Callable[[int], bool] = lambda _: False, **fields: Any
    ) -> Run:
        """Invokes the workflow until its run has ended, without waiting for anything. `loses` is asked whether the
        answer with a number, from 0, never arrives; `fields` are further fields of each request.
        """
        run, attempt = Run(), 0
        for number in range(most):
            ops = self.answer(workflow, run.steps, attempt=attempt, **fields)
            run.answers += 1
            for op in ops if not loses(number) else ():
                run.ops.append(op)
                attempt = self._apply(run, op, attempt)
            if run.status != "running":
                return run
        raise AssertionError(f"the run has not ended after {most} invocations: {run.kinds}")

    def _apply(self, run: Run, op: dict[str, Any], attempt: int) -> int:
        kind = op["op"]
        if kind == "run_completed":
            run.status, run.output = "completed", op.get("output")
            return 0
        if kind in ("step_failed", "run_failed"):
            last = attempt + 1 >= op.get("max_attempts", self._retries + 1)
            if not (last or op.get("non_retriable")):
                return attempt + 1
            if kind == "run_failed":
                run.status, run.error = "failed", op["error"]
            else:
                run.steps[op["id"]] = {"status": "failed", "error": op["error"]}
            return 0
        assert op["id"] not in run.steps, f"{op['id']} was memoized before"
        run.steps[op["id"]] = {"status": "completed", "output": self._output(op)}
        return 0

    def _output(self, op: dict[str, Any]) -> Any:
        if op["op"] == "step_completed":
            return op["output"]
        if op["op"] == "send_event":
            return {"ids": [f"01J{index:023}" for index, _ in enumerate(op["events"])]}
        return self._answers.get(op["id"])
