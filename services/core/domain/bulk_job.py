"""Jobs over many runs: what may be asked for, and how far a job is (engine section 3, `POST …/runs/bulk`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from services.core.domain.errors import FieldError, InvalidInput
from services.core.domain.op import OpError
from services.core.domain.run import ACTIVE, TERMINAL, Status
from services.core.domain.run_record import RunFilter

MAX_IDS = 1_000
"""Runs that a filter may name."""

MAX_FAULTS = 10
"""Runs of which a job keeps why it could not do them."""

_ACTIVE = frozenset(status.shown for status in ACTIVE)
_ENDED = frozenset(status.shown for status in TERMINAL)
_COMPLETED = frozenset({Status.COMPLETED.shown})

_POSSIBLE: Mapping[str, frozenset[str]] = {
    "cancel": _ACTIVE,
    "retry": _ENDED - _COMPLETED,
    "replay": _ACTIVE | _ENDED,
}
# A replay of runs that are at work has to be asked for.
_UNLESS_SAID: Mapping[str, frozenset[str]] = {**_POSSIBLE, "replay": _ENDED}


@dataclass(frozen=True, slots=True)
class BulkFault:
    """A run that a job could not do, and why."""

    run: UUID
    error: OpError


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkJob:
    """A job and its progress; times are unix milliseconds. `id` None: a dry run, which only counted.

    `action` is cancel, retry or replay; `state` queued, running, completed, failed or stopped. `partial`: the count
    stopped at `total`, there are at least so many. `skipped`: runs whose state did not allow the action any more.
    `faults` are of the first few that failed; `error`: why the job gave up.
    """

    id: UUID | None
    project: str
    action: str
    state: str
    total: int
    partial: bool
    succeeded: int = 0
    skipped: int = 0
    failed: int = 0
    faults: tuple[BulkFault, ...] = ()
    error: OpError | None = None
    created_ms: int | None = None
    ended_ms: int | None = None


def bulk_filter(action: str, asked: RunFilter) -> RunFilter:
    """The filter with the states that the action can be done to. Raises InvalidInput with every fault."""
    possible = _POSSIBLE.get(action)
    if possible is None:
        raise InvalidInput.of("action", f"must be one of {', '.join(_POSSIBLE)}")
    faults = [
        FieldError("filter.states", f"{action} cannot be done to runs that are {state}; allowed: {_words(possible)}")
        for state in sorted(asked.states - possible)
    ]
    if len(asked.ids) > MAX_IDS:
        faults.append(FieldError("filter.run_ids", f"must be at most {MAX_IDS}, it has {len(asked.ids)}"))
    if faults:
        raise InvalidInput.of_all(faults)
    return replace(asked, states=asked.states or _UNLESS_SAID[action])


def filter_json(wanted: RunFilter) -> str:
    """A filter as it is stored; the same filter is the same text."""
    return json.dumps(
        {
            "project": wanted.project,
            "workflow": wanted.workflow,
            "states": sorted(wanted.states),
            "since_ms": wanted.since_ms,
            "until_ms": wanted.until_ms,
            "query": wanted.query,
            "tags": sorted(wanted.tags),
            "ids": sorted(str(id) for id in wanted.ids),
        }
    )


def filter_from_json(text: str) -> RunFilter:
    """A stored filter."""
    fields = json.loads(text)
    return RunFilter(
        project=fields["project"],
        workflow=fields["workflow"],
        states=frozenset(fields["states"]),
        since_ms=fields["since_ms"],
        until_ms=fields["until_ms"],
        query=fields["query"],
        tags=tuple(fields["tags"]),
        ids=tuple(UUID(id) for id in fields["ids"]),
    )


def filter_print(wanted: RunFilter) -> str:
    """By what two jobs are known to be the same."""
    return hashlib.sha256(filter_json(wanted).encode()).hexdigest()


def _words(states: frozenset[str]) -> str:
    return ", ".join(sorted(states))
