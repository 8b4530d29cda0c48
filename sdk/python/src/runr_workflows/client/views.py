"""What the API answers (docs/http-api.md). Times are ISO-8601 in UTC; newer engines may answer more fields."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

RunStatus = Literal["queued", "running", "sleeping", "waiting", "completed", "failed", "cancelled", "timed_out"]
StepStatus = Literal["completed", "failed", "retrying", "sleeping", "waiting", "cancelled"]
StepKind = Literal["run", "sleep", "wait_for_event", "invoke", "send_event"]
Source = Literal["api", "event", "cron", "queue", "invoke", "replay"]


class Failure(TypedDict):
    """An error."""

    name: str
    message: str
    stack: str | None


class Attempt(TypedDict):
    """An attempt of a step or of the function, from 1; `error` is None for the one that succeeded.

    `step_id` of one of the function is the step that it was in, where that is known (`WorkerLost`).
    """

    attempt: int
    error: Failure | None
    step_id: str | None
    started_at: str | None
    ended_at: str | None
    warning: str | None


class Wait(TypedDict):
    """What a step waits for."""

    event: str | None
    condition: str | None
    timeout_at: str | None
    warnings: list[str]


class RunStep(TypedDict):
    """A step. `timed_out`: it waited for an event until its time was up, and its output is None."""

    id: str
    name: str
    kind: StepKind
    status: StepStatus
    output: Any
    error: Failure | None
    input: Any
    attempts: list[Attempt]
    started_at: str | None
    ended_at: str | None
    wake_at: str | None
    wait: Wait | None
    child_run_id: str | None
    timed_out: bool


class TriggerEvent(TypedDict):
    """The event that has started a run; `ts` is unix milliseconds."""

    id: str
    name: str
    data: dict[str, Any]
    ts: int


class Child(TypedDict):
    """A run that a step has invoked."""

    id: str
    workflow: str
    step_id: str
    status: RunStatus


class RunWait(TypedDict):
    """Why a run does not go on, for programs and for people."""

    kind: Literal["executor", "worker", "slot", "retry", "start", "answer"]
    message: str


class Run(TypedDict):
    """A run as lists show it: without `event` and `output`. `waiting_for` is None for one that goes on."""

    id: str
    workflow: str
    project: str
    status: RunStatus
    source: Source
    test: bool
    attempt: int
    tags: list[str]
    idempotency_key: str | None
    parent_run_id: str | None
    replay_of_run_id: str | None
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    due_at: str | None
    timeout_at: str | None
    event: TriggerEvent | None
    output: Any
    error: Failure | None
    attempts: list[Attempt]
    trace_id: str | None
    waiting_for: RunWait | None


class RunDetail(Run):
    """A run with its steps, in step order."""

    steps: list[RunStep]
    children: list[Child]


class SentEvent(TypedDict):
    """What an event came to: ids of the runs that it started, and how many it resumed and cancelled."""

    id: str
    name: str
    duplicate: bool
    runs: list[str]
    resumed: int
    cancelled: int


class StoredEvent(TypedDict):
    """An event as it is stored; in lists without `data`. `event_id` is the sender's own id."""

    id: str
    name: str
    data: dict[str, Any] | None
    ts: int
    event_id: str | None
    source: str
    project: str | None
    run_id: str | None
    test: bool
    received_at: str | None
    runs: list[str]
    resumed: int
    cancelled: int
    started: int
    resumed_runs: list[str]
    cancelled_runs: list[str]
    skipped: list[dict[str, Any]]
    trace_id: str | None
