"""Execute requests as the engine writes them, with what a rule wants to be in them (protocol section 4)."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.core.domain.envelope import EventInfo, RunInfo, StepsFragment, error_json, execute_request
from services.core.domain.json_text import dump
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text

EVENT_NAME = "conformance.asked"

_STARTED_AT = 1_760_000_000_000


def new_ulid() -> str:
    """A new id of a run or an event."""
    return ulid_text(UlidFactory(SystemClock(), random.SystemRandom()).new())


@dataclass(frozen=True, slots=True)
class Memoized:
    """A step that has its result: the JSON text of its output, or of the error it failed with for good."""

    id: str
    output: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One invocation of a run. `data` is the JSON text of the event's data; `extra` are further fields of the request,
    each with its JSON text.
    """

    workflow: str
    data: str = "{}"
    steps: tuple[Memoized, ...] = ()
    attempt: int = 0
    max_ops: int | None = None
    budget_ms: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    run_id: str = field(default_factory=new_ulid)

    @classmethod
    def of(cls, workflow: str, /, **data: Any) -> Execution:
        """The first invocation of a run whose event has this data."""
        return cls(workflow=workflow, data=dump(data))

    def completed(self, step_id: str, output: str) -> Execution:
        """The invocation after a step has got this output, a JSON text."""
        return replace(self, steps=(*self.steps, Memoized(step_id, output)))

    def failed(self, step_id: str, name: str, message: str) -> Execution:
        """The invocation after a step has failed for good."""
        return replace(self, steps=(*self.steps, Memoized(step_id, None, error_json(name, message))))

    def text(self, unix_s: int) -> str:
        """The request, at a time in unix seconds."""
        fragment = StepsFragment()
        for step in self.steps:
            if step.output is not None:
                fragment.completed(step.id, step.output)
            else:
                fragment.failed(step.id, step.error or "{}")
        text = execute_request(
            workflow=self.workflow,
            run=RunInfo(id=self.run_id, attempt=self.attempt, started_at=_STARTED_AT, source="event"),
            event=EventInfo(id=new_ulid(), name=EVENT_NAME, data=self.data, ts=_STARTED_AT),
            steps_fragment=fragment.steps,
            order_fragment=fragment.order,
            ts=unix_s,
            max_ops=self.max_ops,
            budget_ms=self.budget_ms,
        )
        more = "".join(f",{json.dumps(name)}:{value}" for name, value in self.extra.items())
        return f"{text[:-1]}{more}}}"
