"""Whether code still goes the way of a run that is stored: a dry replay that executes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..definition import Workflow
from ..dry import DryReplay
from ..endpoint import Endpoint
from ..protocol import ExecuteRequest
from ..replay import Replay
from ..workflows import Workflows
from .stored import ENDED

History = Mapping[str, Any]
"""A run with its steps, as `GET /runs/{id}` answers it."""

_WOULD_RUN = "would_run"
_OPEN = ("sleeping", "waiting", "retrying")


class Divergence(AssertionError):
    """The code does not go the way of the stored run. `step_id` is the first step in which they part, None: the end."""

    def __init__(self, message: str, step_id: str | None) -> None:
        super().__init__(message)
        self.step_id = step_id


@dataclass(frozen=True, slots=True)
class Replayed:
    """How far the code has come: the steps that it called, and the next one, None where the function has ended."""

    called: list[str] = field(default_factory=list)
    next: str | None = None


class _DryEndpoint(Endpoint):
    def _replay(self, workflow: Workflow, request: ExecuteRequest, began: float) -> Replay:
        replay = super()._replay(workflow, request, began)
        assert isinstance(replay, DryReplay)
        self.last = replay
        return replay


def replay(app: Workflows, history: History) -> Replayed:
    """Replays a stored run with the code of now, executing no step. Raises Divergence at the first difference.

    `history` is a run with its steps as `GET /runs/{id}` answers it, or as `run.history` of the kit is. The code must
    call the steps of the history, with their kinds, and no other before the last of them, be it one that the run is in;
    of a run that has ended it must end in the same way, with the same output.
    """
    endpoint = app.endpoint(_DryEndpoint)
    status, body = endpoint.answer(_request(history))
    answer = json.loads(body)
    if status != 200:
        raise Divergence(f"the run cannot be replayed: {answer['error']}", None)
    (op,) = answer["ops"]
    found = endpoint.last
    _check_kinds(history, found)
    _check_way(history, found, op)
    if op["op"] != _WOULD_RUN:
        _check_end(history, op, endpoint)
    return Replayed(list(found.calls), found.next)


def _request(history: History) -> str:
    steps = {step["id"]: memo for step in history["steps"] if (memo := _memo(step)) is not None}
    run = {
        "id": history["id"],
        "attempt": 0,
        "started_at": history.get("started_at"),
        "source": history.get("source") or "api",
        "replay": history.get("source") == "replay",
        "parent_run_id": history.get("parent_run_id"),
        "test": history.get("test", False),
    }
    if not isinstance(history.get("event"), Mapping):
        raise ValueError("the history has no event: take that of one run (GET /runs/{id}), not that of a list")
    request = {"type": "execute", "protocol": "v1", "dry": True, "workflow": history["workflow"], "run": run}
    return json.dumps({**request, "event": history["event"], "steps": steps, "step_order": list(steps)})


def _memo(step: Mapping[str, Any]) -> dict[str, Any] | None:
    if step["status"] == "completed":
        return {"status": "completed", "output": step["output"]}
    return {"status": "failed", "error": step["error"]} if step["status"] == "failed" else None


def _check_kinds(history: History, found: DryReplay) -> None:
    stored = {step["id"]: step["kind"] for step in history["steps"]}
    for step_id, kind in found.calls.items():
        if step_id in stored and stored[step_id] != kind:
            raise Divergence(f"step {step_id!r} is {kind} in the code, and {stored[step_id]} in the history", step_id)


def _check_way(history: History, found: DryReplay, op: Mapping[str, Any]) -> None:
    """Every step that has a result is called, and the run goes on in the step that it is in, if it is in one."""
    stored = [step["id"] for step in history["steps"]]
    before = stored[: stored.index(found.next)] if found.next in stored else stored
    missing = next(
        (step["id"] for step in history["steps"] if step["id"] in before and _is_missing(step, found.calls)), None
    )
    instead, after = _instead(found, op), _after(found)
    if missing is not None:
        raise Divergence(f"the history goes on with step {missing!r}, where the code {instead}{after}", missing)
    opened = [step["id"] for step in history["steps"] if step["status"] in _OPEN]
    if opened and op["op"] != "run_failed" and found.next not in opened:
        raise Divergence(f"the run is in step {opened[0]!r}, and the code {instead} without it{after}", opened[0])
    if found.next is not None and found.next not in stored and history["status"] == "completed":
        raise Divergence(f"the run has completed, and the code goes on with a new step {found.next!r}", found.next)


def _instead(found: DryReplay, op: Mapping[str, Any]) -> str:
    if op["op"] == "run_failed":
        return f"fails with {op['error']['name']}: {op['error']['message']}"
    return "ends" if found.next is None else f"calls {found.next!r}"


def _after(found: DryReplay) -> str:
    last = next((step_id for step_id in reversed(found.calls) if found.knows(step_id)), None)
    return "" if last is None else f"; the last step that it called is {last!r}"


def _is_missing(step: Mapping[str, Any], called: Mapping[str, str]) -> bool:
    return step["status"] in ("completed", "failed") and step["id"] not in called


def _check_end(history: History, op: Mapping[str, Any], endpoint: _DryEndpoint) -> None:
    """The code has ended without a step."""
    status = history["status"]
    if op["op"] == "run_failed":
        error = op["error"]
        if status == "failed" and history["error"]["name"] == error["name"]:
            return
        if status not in ENDED and any(_is_of(error, step["error"]) for step in history["steps"]):
            return
        raise Divergence(f"the run is {status}, and the code fails with {error['name']}: {error['message']}", None)
    if status == "completed":
        before, now = endpoint.decoded(history["output"]), endpoint.decoded(op["output"])
        if before != now:
            raise Divergence(f"the run has completed with {before!r}, the code with {now!r}", None)
    if status == "failed":
        raise Divergence("the run has failed, and the code completes", None)


def _is_of(failure: Mapping[str, Any], error: Mapping[str, Any] | None) -> bool:
    """Whether a failure is that of a step: that it has failed for good and is not caught is no fault of the code."""
    return error is not None and (error["name"], error["message"]) == (failure["name"], failure["message"])
