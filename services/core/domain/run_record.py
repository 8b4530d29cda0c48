"""A run as it is shown: what readers of the store hand out and the API answers (engine sections 3 and 5).

States, kinds and sources are the API's words. Times are unix milliseconds. Payloads are JSON text, as it was stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from services.core.domain.op import OpError
from services.core.domain.run_wait import RunWait

STEP_KINDS = {"r": "run", "s": "sleep", "e": "wait_for_event", "i": "invoke", "n": "send_event"}
"""Word of a step's kind, by its letter in the store."""

STEP_STATES = {"c": "completed", "f": "failed", "x": "cancelled"}
"""Word of a stored step's status, by its letter in the store."""

Place = tuple[int, str]
"""Where a step stands in its run: its number in step order, then its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt of a step or of the function; `error` None: the one that succeeded.

    `step_id` of an attempt of the function: the step that it was in, where that is known.
    """

    number: int
    error: OpError | None
    started_ms: int
    ended_ms: int
    warning: str | None = None
    step_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRecord:
    """What a waiting step waits for. `event` is empty for an invoke; `timeout_ms` is a time."""

    event: str
    condition: str | None
    timeout_ms: int | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step. `wake_ms` is set while it sleeps or waits for its next attempt, `wait` while it waits. `timed_out`: it
    waited for an event until its time was up.
    """

    id: str
    name: str
    kind: str
    state: str
    started_ms: int | None
    ended_ms: int | None = None
    output: str | None = None
    error: OpError | None = None
    input: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    wake_ms: int | None = None
    wait: WaitRecord | None = None
    child: UUID | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRecord:
    """The event that started a run. `data` None: it is not kept any more."""

    id: UUID
    name: str
    data: str | None
    ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run. `event`, `output` and `attempts` (failed ones of the function) are left out of lists.

    `attempt` counts attempts of the step that runs next, or of the function. `trace` is a traceparent. `waiting`: why
    it does not go on, where that was asked for.
    """

    id: UUID
    workflow: str
    project: str
    state: str
    source: str
    test: bool
    attempt: int
    tags: tuple[str, ...]
    idempotency_key: str | None
    parent: UUID | None
    replay_of: UUID | None
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    due_ms: int | None
    timeout_ms: int | None
    error: OpError | None
    trace: str | None
    event: TriggerRecord | None = None
    output: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    waiting: RunWait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecord:
    """A run that a step of another run started, or found by its idempotency key."""

    id: UUID
    workflow: str
    step_id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run with a page of its steps. `next` is the place behind which more steps follow, None: these were the last."""

    run: RunRecord
    steps: tuple[StepRecord, ...]
    children: tuple[ChildRecord, ...]
    next: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Where a run stands and, once it has ended, what came of it."""

    id: UUID
    state: str
    ended: bool
    output: str | None
    error: OpError | None
    ended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a list holds; None and empty mean all. `query` is a run's id, an idempotency key or an event's id.

    `since_ms` ≤ creation < `until_ms`. `states` are words; `tags`: runs that carry all of them; `ids`: only these.
    """

    project: str | None = None
    workflow: str | None = None
    states: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    query: str | None = None
    tags: tuple[str, ...] = ()
    ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first. `next`: go on behind this id; None on the last page.

    A page may be shorter than asked for, even empty, and not be the last: the search for rare runs stops after a while.
    """

    runs: tuple[RunRecord, ...]
    next: UUID | None
