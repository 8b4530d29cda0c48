"""A stage for a story that is told twice: to the real engine, and to the test kit of the Python SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from runr_workflows import Workflows
from runr_workflows.testing import TestEngine, TestRun

from tests.support.rest import Json, Rest


class Stage(Protocol):
    """What a story does; runs are named by their ids."""

    async def start(self, workflow: str, data: Json | None = None, **options: Any) -> str:
        """Start a run."""

    async def waits(self, run: str, step: str) -> None:
        """Go on when the run sleeps or waits in a step."""

    async def send(self, name: str, data: Json | None = None, **fields: Any) -> list[str]:
        """Send an event; the runs that it started."""

    async def cancel(self, run: str) -> None:
        """Cancel a run."""

    async def end(self, run: str) -> Json:
        """The run with its steps, once it has ended."""


@dataclass(frozen=True)
class Told:
    """A story: workflows, and what is done with them. It answers the runs that count, in order."""

    register: Callable[[Workflows], None]
    tell: Callable[[Stage], Awaitable[list[Json]]]


class RealStage:
    """The engine behind a REST API."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def start(self, workflow: str, data: Json | None = None, **options: Any) -> str:
        """As in `Stage`."""
        return await self._rest.start(workflow, data, **options)

    async def waits(self, run: str, step: str) -> None:
        """As in `Stage`."""
        await self._rest.becomes(run, lambda found: any(_is_open(each, step) for each in found["steps"]))

    async def send(self, name: str, data: Json | None = None, **fields: Any) -> list[str]:
        """As in `Stage`."""
        return list((await self._rest.send(name, data, **fields))["runs"])

    async def cancel(self, run: str) -> None:
        """As in `Stage`."""
        await self._rest.ok("POST", f"/runs/{run}/cancel", {})

    async def end(self, run: str) -> Json:
        """As in `Stage`."""
        return await self._rest.end(run)


class KitStage:
    """The engine of the test kit."""

    def __init__(self, workflows: Workflows) -> None:
        self._engine = TestEngine(workflows)

    async def start(self, workflow: str, data: Json | None = None, **options: Any) -> str:
        """As in `Stage`."""
        return (await self._engine.start_async(workflow, data, **options)).id

    async def waits(self, run: str, step: str) -> None:
        """As in `Stage`."""
        found = self._run(run)
        for _ in range(100):
            if step in found.steps and _is_open(found.history["steps"][list(found.steps).index(step)], step):
                return
            await self._engine.advance_async("100ms")
        raise AssertionError(f"{run} does not wait in {step}:\n{found.timeline}")

    async def send(self, name: str, data: Json | None = None, **fields: Any) -> list[str]:
        """As in `Stage`."""
        sent = await self._engine.send_async(name, data, id=fields.get("id"))
        return [run.id for run in sent.runs]

    async def cancel(self, run: str) -> None:
        """As in `Stage`."""
        self._engine.cancel(self._run(run))

    async def end(self, run: str) -> Json:
        """As in `Stage`."""
        return dict((await self._engine.finish_async(self._run(run))).history)

    def _run(self, id: str) -> TestRun[Any]:
        return next(run for run in self._engine.runs if run.id == id)


def timeline(run: Json) -> Json:
    """A run without what differs by nature: times, ids and stacks."""
    return {
        "workflow": run["workflow"],
        "status": run["status"],
        "source": run["source"],
        "event": (run["event"]["name"], _without_ids(run["event"]["data"])),
        "output": _without_ids(run["output"]),
        "error": _error(run["error"]),
        "attempts": _attempts(run),
        "steps": [_step(step) for step in run["steps"]],
        "children": [(child["workflow"], child["step_id"], child["status"]) for child in run["children"]],
    }


def _step(step: Json) -> Json:
    given = step["input"]
    if isinstance(given, dict) and "until_ms" in given:
        given = "until"
    return {
        "id": step["id"],
        "name": step["name"],
        "kind": step["kind"],
        "status": step["status"],
        "output": _without_ids(step["output"]),
        "error": _error(step["error"]),
        "input": given,
        "attempts": _attempts(step),
        "has_child": step["child_run_id"] is not None,
        "timed_out": step["timed_out"],
    }


def _attempts(holder: Json) -> list[tuple[int, Any]]:
    return [(attempt["attempt"], _error(attempt["error"])) for attempt in holder["attempts"]]


def _error(error: Json | None) -> tuple[str, str] | None:
    return None if error is None else (error["name"], error["message"])


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        shown = {key: _without_ids(inner) for key, inner in value.items() if key not in ("id", "ts", "run_id", "stack")}
        return {**shown, "ids": len(value["ids"])} if isinstance(value.get("ids"), list) else shown
    return [_without_ids(inner) for inner in value] if isinstance(value, list) else value


def _is_open(step: Json, id: str) -> bool:
    return step["id"] == id and step["status"] in ("sleeping", "waiting")
