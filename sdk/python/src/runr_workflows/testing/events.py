"""Events of the kit's engine: each cancels, resumes and starts, in this order (engine section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..event import Event
from ..event_names import RUN_ENDS
from ..expression import Events as Pair
from ..expression import Expression
from ..json_values import is_true
from ..values import decode, encode
from .stored import StoredStep, TestRun
from .ulid import ulid
from .world import World


@dataclass(slots=True)
class Sent:
    """What an event came to: the runs that it started, and how many it resumed and cancelled."""

    id: str
    name: str
    duplicate: bool = False
    runs: list[TestRun[Any]] = field(default_factory=list)
    resumed: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class _Received:
    event: Event
    at_ms: int


def json_object(value: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """An object through JSON. Raises SerializationError, or TypeError for what is none."""
    found = decode(encode(value or {}, what))
    if not isinstance(found, dict):
        raise TypeError(f"{what} is an object (dict), not {type(value).__name__}")
    return found


class Events:
    """What was received, and who listens."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._received: list[_Received] = []
        self._by_key: dict[str, Sent] = {}

    def make(self, name: str, data: Mapping[str, Any] | None, *, seed: str, ts: int | None = None) -> Event:
        """An event that is received now."""
        now_ms = self._world.now_ms
        id = ulid(seed)
        return Event(id=id, name=name, data=json_object(data, "data"), ts=now_ms if ts is None else ts)

    def accept(self, event: Event, key: str | None = None, *, passed: frozenset[str] = frozenset()) -> Sent:
        """All effects of an event. One whose key was used is answered with what the first came to.

        `passed` are workflows that it does not start.
        """
        if key is not None and key in self._by_key:
            first = self._by_key[key]
            return Sent(first.id, first.name, True, first.runs, first.resumed, first.cancelled)
        sent = Sent(event["id"], event["name"])
        if key is not None:
            self._by_key[key] = sent
        self._received.append(_Received(event, self._world.now_ms))
        active = [run for run in self._world.runs if not run.ended]
        for run in active:
            if not run.ended and self._cancels(event, run):
                self._world.end(run, "cancelled")
                sent.cancelled += 1
        for run in active:
            step = run._open_step
            if step is not None and self._resumes(event, run, step):
                self._give(run, step, event)
                sent.resumed += 1
        for workflow in self._world.workflows.values():
            pair: Pair = (event, None)
            heard = any(each.event == event["name"] and is_true(each.holds(pair)) for each in workflow.triggers)
            if heard and workflow.name not in passed:
                run, _ = self._world.start(workflow.name, event, "event")
                sent.runs.append(run)
        return sent

    def wait(self, run: TestRun[Any], step: StoredStep, holds: Expression, since_ms: int | None) -> bool:
        """A wait has been opened. Whether an event since then, of before now, has resumed it already."""
        step.holds = holds
        for received in self._received if since_ms is not None else ():
            event = received.event
            if received.at_ms >= (since_ms or 0) and event["id"] not in run._given and self._resumes(event, run, step):
                self._give(run, step, event)
                return True
        return False

    def run_ended(self, run: TestRun[Any]) -> None:
        """The end of a run is an event, if anyone listens to it."""
        name = f"runr/run.{run.status}"
        if not self._is_heard(name):
            return
        before = run.event["data"].get("lineage", []) if run.event["name"] in RUN_ENDS else []
        lineage = [*before, f"default/{run.workflow}"]
        data: dict[str, Any] = {
            "run_id": run.id,
            "workflow": run.workflow,
            "project": "default",
            "status": run.status,
            "event": {"id": run.event["id"], "name": run.event["name"]},
            "lineage": lineage,
        }
        if run.error is not None:
            data["error"] = run.error
        if run.status == "completed":
            data["output"] = run.output
        passed = frozenset(each.partition("/")[2] for each in lineage)
        self.accept(self.make(name, data, seed=f"end of {run.id}"), passed=passed)

    def _is_heard(self, name: str) -> bool:
        workflows = self._world.workflows.values()
        listed = any(each.event == name for found in workflows for each in (*found.triggers, *found.cancel_on))
        waits = (step for run in self._world.runs if (step := run._open_step) is not None and step.wait is not None)
        return listed or any(step.wait and step.wait["event"] == name for step in waits)

    def _cancels(self, event: Event, run: TestRun[Any]) -> bool:
        for each in self._world.workflows[run.workflow].cancel_on:
            in_time = each.timeout_ms is None or self._world.now_ms < run._due_ms + each.timeout_ms
            if each.event == event["name"] and in_time and is_true(each.holds((run.event, event))):
                return True
        return False

    def _resumes(self, event: Event, run: TestRun[Any], step: StoredStep) -> bool:
        if step.holds is None or step.wait is None or step.wait["event"] != event["name"]:
            return False
        return is_true(step.holds((run.event, event)))

    def _give(self, run: TestRun[Any], step: StoredStep, event: Event) -> None:
        run._given.add(event["id"])
        self._world.deliver(run, step, dict(event))
