"""Why a run that is ready, waits for a time to begin or try again, or is executed does not go on (engine section 5).

Nobody keeps it: it is found out when somebody looks, from what is stored at that moment. Which workers are connected
only executors know, so it is concluded: one that serves the workflow and has room would have taken the run at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from services.core.domain.op import OpError
from services.core.domain.run import Status
from services.core.domain.safe_text import cut
from services.core.domain.tick import instant_text

Kind = Literal["executor", "worker", "slot", "retry", "start", "answer"]
Workers = Literal["none", "others", "busy"]
"""What workers execute runs of, now: of nothing in the project, of other workflows, or of this one."""

_SOON_MS = 2_000
"""Until then a run may be on its way to a worker."""

_SILENT_MS = 5_000
"""For so long a step may take before it is told that one waits for it."""

_MAX_ERROR_BYTES = 500


@dataclass(frozen=True, slots=True)
class RunWait:
    """What a run waits for: a word for programs, a sentence for people."""

    kind: Kind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a run that does not go on.

    `pooled`: workers alone serve it. `ready_ms`: for how long it has been ready. `due_ms`: the time that it waits for,
    unix. `heard_ms`: when it went on last, unix, of one that is executed; `streamed`: by a worker. `attempt`, `error`:
    the last that failed. `concurrency`: the workflow's limits, as in its definition.
    """

    status: Status
    pooled: bool = False
    ready_ms: int = 0
    due_ms: int | None = None
    now_ms: int = 0
    heard_ms: int | None = None
    streamed: bool = False
    attempt: int | None = None
    error: OpError | None = None
    concurrency: str | None = None
    executors: bool = True
    workers: Workers = "none"


def run_wait(standing: Standing) -> RunWait | None:
    """What an active run waits for that neither sleeps nor waits in a step; None for one that goes on."""
    match standing.status:
        case Status.RUNNING:
            return _executed(standing)
        case Status.BLOCKED:
            return RunWait("slot", f"waits for a slot: {_limits(standing.concurrency)}")
        case Status.DELAYED:
            return _delayed(standing)
        case Status.PARKED:
            return RunWait("worker", "waits for its worker, whose connection broke; soon another may take it")
    if not standing.executors:
        return RunWait("executor", "waits for an executor: none is alive")
    return _queued_for_workers(standing) if standing.pooled else RunWait("executor", "waits for an executor with room")


def _executed(standing: Standing) -> RunWait | None:
    if standing.heard_ms is None or standing.now_ms - standing.heard_ms < _SILENT_MS:
        return None
    who = "worker" if standing.streamed else "function"
    return RunWait("answer", f"waits for an answer of the {who} that executes it, since {_instant(standing.heard_ms)}")


def _delayed(standing: Standing) -> RunWait:
    when = "its time" if standing.due_ms is None else _instant(standing.due_ms)
    if standing.attempt is None:
        return RunWait("start", f"starts at {when}")
    error = standing.error
    why = "" if error is None else cut(f", because of {error.name}: {error.message}", _MAX_ERROR_BYTES)
    return RunWait("retry", f"tries again at {when}, attempt {standing.attempt + 1}{why}")


def _queued_for_workers(standing: Standing) -> RunWait:
    if standing.workers == "busy":
        return RunWait("worker", "waits for a worker with room: those that serve the workflow are busy")
    if standing.ready_ms < _SOON_MS:
        return RunWait("worker", "waits for a worker")
    if standing.workers == "others":
        return RunWait("worker", "waits for a worker: none is connected that serves the workflow, or all are busy")
    return RunWait("worker", "waits for a worker: none is connected that serves the workflow")


def _limits(concurrency: str | None) -> str:
    limits: list[Mapping[str, Any]] = json.loads(concurrency) if concurrency else []
    told = " and ".join(_limit(limit) for limit in limits)
    return f"the workflow's concurrency is limited to {told}" if told else "the workflow's concurrency is limited"


def _limit(limit: Mapping[str, Any]) -> str:
    key = limit.get("key")
    return f"{limit['limit']} for each {key}" if key else str(limit["limit"])


def _instant(unix_ms: int) -> str:
    return instant_text(datetime.fromtimestamp(unix_ms / 1_000, tz=UTC))
