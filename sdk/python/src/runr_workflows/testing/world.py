"""The runs of the kit's engine: how they start, rest, go on and end (engine section 5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..event import Event
from ..json_values import key_of
from .declared import Declared
from .script import Script
from .stored import Entry, Error, StoredStep, TestRun, moment
from .timers import Timers
from .ulid import ulid

MAX_STEPS = 10_000
DEFAULT_WAIT_MS = 7 * 86_400_000
OUTPUT_BYTES = 1024 * 1024

_TIMEOUT_ERROR = {"name": "RunTimeout", "message": "the run did not end within its timeout"}
_INVOKE_TIMEOUT = {
    "name": "InvokeTimeout",
    "message": "the invoked workflow did not end within the timeout of the step",
}


class World:
    """All runs, and the queue of those that have something to execute.

    `ended` is told of each end, for the events about it.
    """

    def __init__(self, workflows: Mapping[str, Declared], timers: Timers, script: Script) -> None:
        self.workflows = workflows
        self.timers = timers
        self.runs: list[TestRun[Any]] = []
        self.ready: deque[TestRun[Any]] = deque()
        self.ended: Callable[[TestRun[Any]], None] = lambda _: None
        self.script = script
        self._keys: dict[tuple[str, str], TestRun[Any]] = {}

    @property
    def now_ms(self) -> int:
        """Virtual time, unix milliseconds."""
        return self.timers.now_ms

    def start(
        self,
        workflow: str,
        event: Event,
        source: str,
        *,
        due_ms: int | None = None,
        idempotency_key: str | None = None,
        parent: TestRun[Any] | None = None,
        script: Script | None = None,
    ) -> tuple[TestRun[Any], bool]:
        """A run, and whether it is new: the one that the idempotency key has is answered instead.

        `script` are faults of this run and those that it invokes.
        """
        definition = self.workflows[workflow]
        key = idempotency_key
        if key is None and definition.idempotency is not None:
            value = definition.idempotency((event, None))
            key = None if value is None else key_of(value)
        elif key is not None:
            key = key_of(key)
        if key is not None and (workflow, key) in self._keys:
            return self._keys[workflow, key], False
        begins_ms = max(self.now_ms, due_ms or 0)
        run = TestRun[Any](
            id=ulid(f"run {len(self.runs)}"),
            workflow=workflow,
            event=event,
            source=source,
            _created_ms=self.now_ms,
            _due_ms=begins_ms,
            _deadline_ms=begins_ms + definition.timeout_ms,
            _max_attempts=definition.max_attempts,
            _scripts=_scripts(script, parent, self.script),
            parent=parent,
            idempotency_key=idempotency_key,
        )
        run._given.add(event["id"])
        self.runs.append(run)
        if key is not None:
            self._keys[workflow, key] = run
        self.timers.at(run._deadline_ms, lambda: self._times_out(run), first=True)
        if begins_ms > self.now_ms:
            self.timers.at(begins_ms, lambda: self.go_on(run))
        else:
            self.go_on(run)
        return run, True

    def go_on(self, run: TestRun[Any]) -> None:
        """The run is to be executed."""
        if not run.ended and run not in self.ready:
            run.status = "queued"
            self.ready.append(run)

    def tell(
        self, run: TestRun[Any], op: str, id: str | None, status: str, *, attempt: int = 1, error: Error | None = None
    ) -> None:
        """Writes a line of the run's timeline."""
        run.timeline.add(Entry(moment(self.now_ms), op, id, status, attempt, error))

    def pause(self, run: TestRun[Any], until_ms: int) -> None:
        """The next attempt is made at this time: at once, where that has passed."""
        run.status = "queued"
        self.timers.at(until_ms, lambda: self.go_on(run))

    def open(self, run: TestRun[Any], step: StoredStep, status: str, due_ms: int) -> None:
        """The run sleeps or waits in a new step; at `due_ms` the step has completed, or the wait is over."""
        step.status = run.status = status
        step.started_ms = self.now_ms
        run.steps[step.id] = step
        self.tell(run, step.kind, step.id, status)
        self.timers.at(due_ms, lambda: self._due(run, step))

    def deliver(self, run: TestRun[Any], step: StoredStep, output: Any = None, error: Error | None = None) -> None:
        """An open step has its result."""
        step.status = "completed" if error is None else "failed"
        step.output, step.error, step.ended_ms = output, error, self.now_ms
        step.wait = step.wake_ms = None
        self.tell(run, step.kind, step.id, step.status, error=error)
        self.go_on(run)

    def end(
        self, run: TestRun[Any], status: str, *, output: Any = None, error: Error | None = None, attempt: int = 1
    ) -> None:
        """The run has ended: its waits are closed, its parent hears of it, active children of a cut off run end too."""
        for step in run.steps.values():
            if step.status in ("sleeping", "waiting", "retrying"):
                step.status, step.wait, step.wake_ms, step.ended_ms = "cancelled", None, None, self.now_ms
        run.status, run.output, run.error, run._ended_ms = status, output, error, self.now_ms
        self.tell(run, f"run_{status}", None, status, attempt=attempt, error=error)
        if run in self.ready:
            self.ready.remove(run)
        for waiting in self.runs:
            invoke = waiting._open_step
            if invoke is not None and invoke.child == run.id:
                self.child_ended(waiting, invoke, run)
        if status in ("cancelled", "timed_out"):
            for child in run.children:
                if child.parent is run and not child.ended:
                    self.end(child, "cancelled")
        self.ended(run)

    def child_ended(self, run: TestRun[Any], step: StoredStep, child: TestRun[Any]) -> None:
        """What a run gets that waits for a child which has ended."""
        if child.status == "completed":
            self.deliver(run, step, child.output)
            return
        why = "" if child.error is None else f": {child.error['message']}"
        self.deliver(run, step, error={"name": "InvokeError", "message": f"the invoked run {child.status}{why}"})

    def waits_for(self, run: TestRun[Any], other: TestRun[Any]) -> bool:
        """Whether a run waits for another one, also through others, or is it."""
        seen: list[TestRun[Any]] = []
        while run is not other and run not in seen:
            seen.append(run)
            step = run._open_step
            found = None if step is None else next((each for each in self.runs if each.id == step.child), None)
            if found is None:
                return False
            run = found
        return run is other

    def _due(self, run: TestRun[Any], step: StoredStep) -> None:
        if run._open_step is not step:
            return
        self.deliver(run, step, error=_INVOKE_TIMEOUT if step.kind == "invoke" else None)

    def _times_out(self, run: TestRun[Any]) -> None:
        if not run.ended:
            self.end(run, "timed_out", error=_TIMEOUT_ERROR)


def _scripts(own: Script | None, parent: TestRun[Any] | None, of_all: Script) -> Sequence[Script]:
    if parent is not None:
        return parent._scripts
    return (of_all,) if own is None else (own, of_all)
