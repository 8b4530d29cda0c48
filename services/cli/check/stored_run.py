"""An active run as the API tells it, and the dry request that its function is asked with (protocol section 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.core.domain.envelope import EventInfo, RunInfo, StepsFragment, execute_request
from services.core.domain.json_fault import MAX_DEPTH
from services.core.domain.json_text import Raw, Reader

ACTIVE = ("queued", "running", "sleeping", "waiting")
"""The states of a run that has not ended."""

_ENVELOPE_DEPTH = 4


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step of a run. `output` and `error` are JSON texts; both are None while the step is open."""

    id: str
    kind: str
    status: str
    output: str | None = None
    error: str | None = None

    @property
    def is_memoized(self) -> bool:
        """Whether a call of the step returns or raises what is stored."""
        return self.status in ("completed", "failed")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run with its steps in order."""

    info: RunInfo
    workflow: str
    status: str
    event: EventInfo
    steps: tuple[StoredStep, ...] = ()

    @property
    def id(self) -> str:
        """Its ULID."""
        return self.info.id

    def dry_request(self, unix_s: int) -> str:
        """The text of the dry request at a time in unix seconds."""
        fragment = StepsFragment()
        for step in self.steps:
            if step.status == "completed":
                fragment.completed(step.id, step.output or "null")
            elif step.status == "failed":
                fragment.failed(step.id, step.error or "{}")
        text = execute_request(
            workflow=self.workflow,
            run=self.info,
            event=self.event,
            steps_fragment=fragment.steps,
            order_fragment=fragment.order,
            ts=unix_s,
        )
        return f'{text[:-1]},"dry":true}}'


def read_run(text: str) -> StoredRun:
    """The run in the answer of `GET /runs/{id}`, payloads byte for byte."""
    reader = Reader.of(text, max_depth=MAX_DEPTH + _ENVELOPE_DEPTH)

    def member(name: str) -> Any:
        if name == "steps":
            return reader.elements(reader.raw_members)
        if name == "event" and reader.opens("{"):
            return reader.raw_members()
        return reader.raw()

    run: dict[str, Any] = reader.read(lambda: reader.members(member))
    began = run["started_at"].value or run["created_at"].value
    return StoredRun(
        info=RunInfo(
            id=run["id"].value,
            attempt=run["attempt"].value,
            started_at=round(datetime.fromisoformat(began).timestamp() * 1000),
            source=run["source"].value,
            parent_run_id=run["parent_run_id"].value,
            test=run["test"].value,
        ),
        workflow=run["workflow"].value,
        status=run["status"].value,
        event=_event(run["event"]),
        steps=tuple(map(_step, run["steps"])),
    )


def _event(members: Mapping[str, Raw] | Raw) -> EventInfo:
    if isinstance(members, Raw):
        return EventInfo(id="", name="runr/api.start", data="{}", ts=0)
    name, data, ts = str(members["name"].value), members["data"].text, members["ts"].value
    return EventInfo(id=str(members["id"].value), name=name, data=data, ts=ts if isinstance(ts, int) else 0)


def _step(members: Mapping[str, Raw]) -> StoredStep:
    error = members["error"].value
    # The API says null where there is no stack; a function is told so by its absence.
    described = {key: value for key, value in error.items() if value is not None} if isinstance(error, dict) else None
    return StoredStep(
        id=str(members["id"].value),
        kind=str(members["kind"].value),
        status=str(members["status"].value),
        output=members["output"].text,
        error=None if described is None else json.dumps(described),
    )
