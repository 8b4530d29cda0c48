"""The spans of runs: their names, attributes and places in the trace, the same whichever service records them.

The root of a run in its trace is the short span of its start; its `traceparent` is kept with the run (`runs.trace`), so
that everything that happens to the run later, in any process, is recorded below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from services.core.runtime.ids import ulid_text
from services.core.runtime.telemetry import Attribute, Telemetry
from services.core.runtime.traceparent import is_sampled

NS_PER_MS = 1_000_000

WAIT_WORDS: Mapping[str, str] = {
    "s": "sleep",
    "e": "wait",
    "c": "invoke",
    "i": "invoke",
    "b": "backoff",
    "r": "backoff",
    "d": "delay",
}
"""What a wait is called in a trace, by its letter in the store."""

_FAILED = ("failed", "timed_out")


class TracedRun(NamedTuple):
    """A run whose trace is recorded. `trace` is the `traceparent` of its start."""

    id: UUID
    workflow: str
    trace: str


class PastWait(NamedTuple):
    """A wait that is over. `kind` is its letter in the store; times are unix milliseconds.

    `event`: what resumed it. `cut`: the run ended under it.
    """

    kind: str
    step: str | None
    opened_ms: int
    ended_ms: int
    error: str | None = None
    event: UUID | None = None
    cut: bool = False


class RunSpans:
    """Records spans of runs. Callers ask `enabled` before they look anything up for it."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    @property
    def enabled(self) -> bool:
        """Whether traces are on."""
        return self._telemetry.enabled

    def now_ns(self) -> int:
        """The clock of spans."""
        return self._telemetry.now_ns()

    def follows(self, trace: str | None) -> bool:
        """Whether a run with this `trace` is recorded: all that an unsampled one costs."""
        return self._telemetry.follows(trace)

    def place(self, parent: str | None) -> str | None:
        """The `trace` of a run to be started by the request `parent`; without one the run is a root of its own.

        The decision to sample is made once, by the root: an unsampled request starts unsampled runs.
        """
        if not self.enabled:
            return parent
        if not parent:
            return self._telemetry.reserve(None)
        return self._telemetry.below(parent) if is_sampled(parent) else parent

    def started(self, run: UUID, workflow: str, *, trace: str | None, parent: str | None, begun_ns: int) -> None:
        """The run with this `trace`, which `place` gave, has been started; its start began at `begun_ns`."""
        if trace is None or not self.follows(trace):
            return
        self._telemetry.record(
            f"start {workflow}",
            start_ns=begun_ns,
            end_ns=self.now_ns(),
            parent=parent,
            identity=trace,
            attributes=run_attributes(run, workflow),
        )

    def waited(self, run: TracedRun, wait: PastWait, *, sender: str | None = None) -> None:
        """A wait of the run is over. `sender` is the `traceparent` of the request that sent the event."""
        attributes: dict[str, Attribute] = {**run_attributes(run.id, run.workflow)}
        if wait.step is not None:
            attributes["runr.step_id"] = wait.step
        if wait.event is not None:
            attributes["runr.event_id"] = ulid_text(wait.event)
        elif wait.kind == "e" and not wait.cut:
            attributes["runr.timed_out"] = True
        if wait.cut:
            attributes["runr.cut"] = True
        word = WAIT_WORDS.get(wait.kind, "wait")
        self._telemetry.record(
            word if wait.step is None else f"{word} {wait.step}",
            start_ns=wait.opened_ms * NS_PER_MS,
            end_ns=wait.ended_ms * NS_PER_MS,
            parent=run.trace,
            attributes=attributes,
            error=wait.error,
            link=sender,
        )

    def ended(
        self, run: TracedRun, status: str, *, created_ms: int, ended_ms: int, steps: int, error: str | None
    ) -> None:
        """The run has ended: one span over its whole life."""
        self._telemetry.record(
            f"run {run.workflow}",
            start_ns=created_ms * NS_PER_MS,
            end_ns=ended_ms * NS_PER_MS,
            parent=run.trace,
            attributes={**run_attributes(run.id, run.workflow), "runr.status": status, "runr.steps": steps},
            error=(error or status) if status in _FAILED else None,
        )

    def lost(self, run: TracedRun, at_ns: int) -> None:
        """The process that held the run is gone: its invocation has no span of its own."""
        self._telemetry.record(
            f"invoke {run.workflow}",
            start_ns=at_ns,
            end_ns=at_ns,
            parent=run.trace,
            attributes=run_attributes(run.id, run.workflow),
            error="WorkerLost: the engine process that ran this step disappeared",
        )


def run_attributes(run: UUID, workflow: str) -> dict[str, Attribute]:
    """What every span of a run carries."""
    return {"runr.run_id": ulid_text(run), "runr.workflow": workflow}
