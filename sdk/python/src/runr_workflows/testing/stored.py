"""What the engine of the kit has stored of a run, and its timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast, overload

from ..event import Event
from ..expression import Expression
from .script import Script

ENDED = frozenset({"completed", "failed", "cancelled", "timed_out"})

T = TypeVar("T")
Error = dict[str, Any]
"""`{"name", "message"}`, and `stack` where there is one."""


def moment(unix_ms: int) -> datetime:
    """Unix milliseconds as a time in UTC."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


def time_text(unix_ms: int | None) -> str | None:
    """Unix milliseconds as the REST API writes times."""
    return None if unix_ms is None else f"{moment(unix_ms):%Y-%m-%dT%H:%M:%S}.{unix_ms % 1000:03d}Z"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was stored. `status` is that of the step after it, for the run itself (`id` is None) the run's.

    `op` is the word of the protocol: step_completed, step_failed, sleep, wait_for_event, invoke, send_event,
    run_completed, run_failed; beside these `crash`, `run_cancelled` and `run_timed_out`. A sleep, wait or invoke is
    there twice, when it opens and when it ends. `attempt` counts from 1. `at` is virtual time.
    """

    at: datetime
    op: str
    id: str | None
    status: str
    attempt: int = 1
    error: Error | None = None

    def __str__(self) -> str:
        told = "" if self.error is None else f"  {self.error['name']}: {self.error['message']}"
        number = f" #{self.attempt}" if self.attempt > 1 else ""
        return f"{self.at:%Y-%m-%d %H:%M:%S}  {self.op} {self.id or ''}{number} -> {self.status}{told}"


class Timeline(Sequence[Entry]):
    """The entries of a run in order. `print(run.timeline)` shows them, one a line."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __str__(self) -> str:
        return "\n".join(map(str, self._entries))

    @property
    def ops(self) -> list[tuple[str, str | None, str]]:
        """(op, id, status) of each entry: what a test mostly asserts."""
        return [(entry.op, entry.id, entry.status) for entry in self._entries]

    def of(self, step_id: str) -> list[Entry]:
        """The entries of one step."""
        return [entry for entry in self._entries if entry.id == step_id]

    def add(self, entry: Entry) -> None:
        """Appends an entry."""
        self._entries.append(entry)


@dataclass(slots=True)
class StoredStep:
    """A step of a run. `wake_ms` and what follows belong to one that is open; `child` stays."""

    id: str
    name: str
    kind: str
    status: str = "completed"
    output: Any = None
    error: Error | None = None
    input: Any = None
    attempts: list[dict[str, Any]] = field(default_factory=list)
    started_ms: int = 0
    ended_ms: int | None = None
    wake_ms: int | None = None
    wait: dict[str, Any] | None = None
    child: str | None = None
    holds: Expression | None = None
    """What an event must fulfil that ends the wait."""

    @property
    def memo(self) -> dict[str, Any] | None:
        """As `steps` of an execute request holds it; None where there is no result."""
        if self.status == "completed":
            return {"status": "completed", "output": self.output}
        return {"status": "failed", "error": self.error} if self.status == "failed" else None


@dataclass(slots=True, eq=False, repr=False)
class TestRun(Generic[T]):
    """A run of the kit. `executed` counts the bodies that were executed, by step id, also those that a crash lost.

    `output` is what the workflow has returned, None before and where it fails.
    """

    __test__ = False

    id: str
    workflow: str
    event: Event
    source: str
    _created_ms: int
    _due_ms: int
    _deadline_ms: int
    _max_attempts: int
    _scripts: Sequence[Script]
    parent: TestRun[Any] | None = None
    idempotency_key: str | None = None
    replay_of: str | None = None
    status: str = "queued"
    output: T = cast(Any, None)  # noqa: RUF009
    error: Error | None = None
    _started_ms: int | None = None
    _ended_ms: int | None = None
    steps: dict[str, StoredStep] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=Timeline)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    executed: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    """Of these, executions whose answer never arrived."""
    children: list[TestRun[Any]] = field(default_factory=list)
    _failures: int = 0
    """Failed attempts of the function in a row."""
    _repeats: int = 0
    _one_by_one_until: int = 0
    _given: set[str] = field(default_factory=set)
    """Ids of the events that the run has been given: a look back does not give them again."""

    def __repr__(self) -> str:
        return f"<TestRun of {self.workflow}: {self.status}>"

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.status in ENDED

    @property
    def attempt(self) -> int:
        """`run.attempt` of the next request."""
        failing = next((step for step in self.steps.values() if step.status == "retrying"), None)
        return self._failures if failing is None else len(failing.attempts)

    @property
    def _memoized(self) -> int:
        """How many steps have a place: those with a result, and the one that is open."""
        return sum(step.status != "retrying" for step in self.steps.values())

    @property
    def _open_step(self) -> StoredStep | None:
        """The step that the run sleeps or waits in."""
        return next((step for step in self.steps.values() if step.status in ("sleeping", "waiting")), None)

    @property
    def history(self) -> Mapping[str, Any]:
        """The run as `GET /runs/{id}` answers it, which is what `replay` takes."""
        return {
            "id": self.id,
            "workflow": self.workflow,
            "project": "default",
            "status": self.status,
            "source": self.source,
            "test": True,
            "attempt": self.attempt,
            "tags": [],
            "idempotency_key": self.idempotency_key,
            "parent_run_id": None if self.parent is None else self.parent.id,
            "replay_of_run_id": self.replay_of,
            "created_at": time_text(self._created_ms),
            "started_at": time_text(self._started_ms),
            "ended_at": time_text(self._ended_ms),
            "due_at": time_text(self._due_ms) if self._due_ms != self._created_ms else None,
            "timeout_at": time_text(self._deadline_ms),
            "event": dict(self.event),
            "output": self.output,
            "error": self.error,
            "attempts": self.attempts,
            "trace_id": None,
            "waiting_for": None,
            "steps": [_step_view(step) for step in self.steps.values()],
            "children": [
                {"id": child.id, "workflow": child.workflow, "step_id": step.id, "status": child.status}
                for step in self.steps.values()
                for child in self.children
                if child.id == step.child
            ],
        }


def _step_view(step: StoredStep) -> dict[str, Any]:
    return {
        "id": step.id,
        "name": step.name,
        "kind": step.kind,
        "status": step.status,
        "output": step.output,
        "error": step.error,
        "input": step.input,
        "attempts": step.attempts,
        "started_at": time_text(step.started_ms),
        "ended_at": time_text(step.ended_ms),
        "wake_at": time_text(step.wake_ms),
        "wait": step.wait,
        "child_run_id": step.child,
        "timed_out": step.kind == "wait_for_event" and step.status == "completed" and step.output is None,
    }
