"""From a stored run to an invocation of its workflow, and from the answer to its ops."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..calls import StepCall
from ..checkpoint import CheckpointReplay
from ..definition import Workflow
from ..endpoint import Answer, Endpoint
from ..protocol import ExecuteRequest
from ..replay import Replay, Report, StepFlow
from .script import scripted
from .stored import TestRun, time_text

R = TypeVar("R", bound=Replay)


class _Scripted(Replay):
    """Executes what the test says in place of the body of a step, and counts bodies."""

    run: TestRun[Any]

    def perform(self, call: StepCall, step_id: str) -> StepFlow:
        """As in `Replay`."""
        if call.body is not None and not self.knows(step_id) and not self.is_closed and self._owner is None:
            before = self.run.steps.get(step_id)
            attempts = 0 if before is None else len(before.attempts)
            call = call._replace(body=scripted(self.run._scripts, self.run.workflow, step_id, attempts, call.body))
        return super().perform(call, step_id)

    def _report(self, call: StepCall, step_id: str, report: Report) -> StepFlow:
        if call.body is not None:
            self.run.executed[step_id] += 1
        return super()._report(call, step_id, report)


class ScriptedReplay(_Scripted, Replay):
    """One op an answer."""


class ScriptedCheckpointReplay(_Scripted, CheckpointReplay):
    """Several."""


class InMemoryEndpoint(Endpoint):
    """Answers requests of the kit, which are not signed."""

    plain = ScriptedReplay
    several = ScriptedCheckpointReplay

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.find: Callable[[str], TestRun[Any] | None] = lambda _: None
        """The run of an id."""

    def _replay(self, workflow: Workflow, request: ExecuteRequest, began: float) -> Replay:
        replay = super()._replay(workflow, request, began)
        run = self.find(request.run_id)
        assert run is not None
        assert isinstance(replay, _Scripted)
        replay.run = run
        return replay


def request_text(run: TestRun[Any], *, ts: int, max_ops: int | None) -> str:
    """The execute request of the next invocation (protocol section 4)."""
    steps = {step.id: memo for step in run.steps.values() if (memo := step.memo) is not None}
    request: dict[str, Any] = {
        "type": "execute",
        "protocol": "v1",
        "ts": ts,
        "workflow": run.workflow,
        "run": {
            "id": run.id,
            "attempt": run.attempt,
            "started_at": time_text(run._started_ms),
            "source": run.source,
            "replay": run.source == "replay",
            "parent_run_id": None if run.parent is None else run.parent.id,
            "test": True,
        },
        "event": run.event,
        "steps": steps,
        "step_order": list(steps),
    }
    if max_ops is not None:
        request["max_ops"] = max_ops
    return json.dumps(request)


def ops_of(answer: Answer) -> list[Mapping[str, Any]]:
    """The ops of an answer. Raises LookupError with its text where it is not one."""
    status, body = answer
    if status != 200:
        raise LookupError(f"the function answered {status}: {body[:1024].decode(errors='replace')}")
    ops: list[Mapping[str, Any]] = json.loads(body)["ops"]
    return ops
