"""An event as it is shown, with what it did (engine sections 3 and 6)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedStart:
    """A workflow that an event would have started; `project` is a slug, `reason` a word like "paused"."""

    workflow: str
    project: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEffects:
    """What an event did: runs it started, how many waits it resumed and runs it cancelled, and what it passed over.

    Of the runs that it resumed or cancelled the first thousand are named.
    """

    runs: tuple[UUID, ...]
    resumed: int
    cancelled: int
    resumed_runs: tuple[UUID, ...] = ()
    cancelled_runs: tuple[UUID, ...] = ()
    skipped: tuple[SkippedStart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An accepted event. `data` is JSON text, None in lists; `event_id` the sender's own id; `trace` a traceparent.

    `project` (a slug) and `run` say who sent it, when a workflow did. Times are unix milliseconds.
    """

    id: UUID
    name: str
    data: str | None
    ts: int
    event_id: str | None
    source: str
    project: str | None
    run: UUID | None
    test: bool
    received_ms: int
    effects: EventEffects
    trace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a list holds; None means all. `project` is a slug; `since_ms` ≤ receipt < `until_ms`."""

    name_prefix: str | None = None
    source: str | None = None
    project: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, newest first. `next`: go on behind this id; None on the last page. May be short: see `RunPage`."""

    events: tuple[EventRecord, ...]
    next: UUID | None
