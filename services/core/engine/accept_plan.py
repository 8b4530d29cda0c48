"""What events do, decided before anything is locked: cancel, resume, start, in this order for each event (engine
section 6).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from services.core.domain.expression import evaluate
from services.core.domain.json_value import is_true
from services.core.domain.matching import event_value
from services.core.domain.queue_message import queue_event_name
from services.core.engine.definitions import ProjectEntry, TenantDefinitions, WorkflowEntry
from services.core.engine.payload import event_payload
from services.core.runtime.ids import ulid_text, ulid_unix_ms
from services.core.runtime.loop_share import LoopShare

# Of the runs that an event resumed or cancelled, this many are kept by name; the counts are of all.
_SHOWN = 1_000
_TRIGGER = 100
_AROUND_BYTES = 400


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """An event to accept. `data` is JSON text. `event_id` is the dedupe key within its namespace `src`:

    u the sender's, q the queue bridge's, w a workflow's, r the end of a run. `project` and `run` say who sent it, when
    a workflow did. `passed` names workflows (project/name) that this event does not start.
    """

    name: str
    data: str
    event_id: str | None = None
    src: str = "u"
    ts: int | None = None
    source: str = "api"
    project: int | None = None
    run: UUID | None = None
    test: bool = False
    passed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundWait:
    """A stored wait that an event hits."""

    id: UUID
    run: UUID


@dataclass(slots=True, eq=False)
class AcceptRequest:
    """Events that are accepted or refused together. Under the same `ids` and `accept_id` it is the same request, and
    `again` says that an earlier attempt may have carried it out. `begun_ns` is of the clock of spans. `offered`: the
    sender has made the ids, and may have given them to another request.
    """

    tenant: int
    events: Sequence[Incoming]
    ids: Sequence[UUID]
    accept_id: UUID
    trace: str | None
    begun_ns: int
    again: bool
    offered: bool = False

    @property
    def size(self) -> int:
        """About how many bytes travel with it."""
        return sum(len(event.data) + _AROUND_BYTES for event in self.events)


class EventPlan(msgspec.Struct, eq=False):
    """One event on its way: what it is to expressions, and what it will do."""

    request: AcceptRequest
    incoming: Incoming
    id: UUID
    ts: int
    value: dict[str, Any]
    cancels: list[UUID] = []
    resumes: list[FoundWait] = []
    starts: list[WorkflowEntry] = []
    skipped: list[dict[str, str]] = []
    cancelled: int = 0
    resumed: int = 0
    runs: list[UUID] = []
    resumed_runs: list[UUID] = []
    cancelled_runs: list[UUID] = []
    goes_on: bool = False
    """Whether more follows the commit than hints: children of the cancelled, slots, marks."""

    @property
    def payload(self) -> str:
        """The event as a resumed step gets it: `{id, name, data, ts}`, the data as it was sent."""
        return event_payload(self.id, self.incoming.name, self.incoming.data, self.ts)

    @property
    def effects(self) -> str:
        """What it did, as JSON, kept with the event."""
        if not (self.skipped or self.resumed_runs or self.cancelled_runs):
            runs = '", "'.join(_texts(self.runs))
            runs = f'["{runs}"]' if runs else "[]"
            return f'{{"runs": {runs}, "resumed": {self.resumed}, "cancelled": {self.cancelled}}}'
        done: dict[str, Any] = {"runs": _texts(self.runs), "resumed": self.resumed, "cancelled": self.cancelled}
        lists = {
            "resumed_runs": _texts(self.resumed_runs[:_SHOWN]),
            "cancelled_runs": _texts(self.cancelled_runs[:_SHOWN]),
            "skipped": self.skipped,
        }
        return json.dumps(done | {name: found for name, found in lists.items() if found})


def new_plans(places: Sequence[tuple[AcceptRequest, int]], now_ms: int) -> list[EventPlan]:
    """Plans that do nothing yet, for events by their requests and places in them."""
    return [_new_plan(request, request.events[place], request.ids[place], now_ms) for request, place in places]


def _new_plan(request: AcceptRequest, incoming: Incoming, id: UUID, now_ms: int) -> EventPlan:
    ts = now_ms if incoming.ts is None else incoming.ts
    value = event_value(id=ulid_text(id), name=incoming.name, data=incoming.data, ts=ts)
    return EventPlan(request, incoming, id, ts, value)


async def fill(
    plans: Sequence[EventPlan],
    cancels: Mapping[int, list[UUID]],
    resumes: Mapping[int, list[FoundWait]],
    definitions: TenantDefinitions,
    share: LoopShare,
) -> None:
    """Decide what each event does. `cancels` and `resumes` are what each hits, by its place."""
    for place, plan in enumerate(plans):
        plan.cancels = cancels.get(place, [])
        plan.resumes = resumes.get(place, [])
        await _fill_starts(plan, definitions, share)


async def _fill_starts(plan: EventPlan, definitions: TenantDefinitions, share: LoopShare) -> None:
    """Each workflow starts once for an event, however many of its triggers hold."""
    seen: set[int] = set()
    for trigger in definitions.by_event.get(plan.incoming.name, ()):
        if share.spent(_TRIGGER):
            await share.rest()
        entry = trigger.workflow
        if entry.id in seen or _gets_its_own(plan.incoming, definitions.projects[entry.project]):
            continue
        if trigger.condition is not None and not is_true(evaluate(trigger.condition, event=plan.value)):
            continue
        seen.add(entry.id)
        if f"{definitions.projects[entry.project].slug}/{entry.name}" in plan.incoming.passed:
            plan.skipped.append(_skipped(entry, "loop", definitions))
        elif entry.archived:
            plan.skipped.append(_skipped(entry, "archived", definitions))
        elif not entry.is_active:
            plan.skipped.append(_skipped(entry, "paused", definitions))
        else:
            plan.starts.append(entry)


def _gets_its_own(incoming: Incoming, project: ProjectEntry) -> bool:
    """Whether the event is another project's copy of a queue message: who consumes the stream too has its own."""
    return (
        incoming.src == "q"
        and incoming.project != project.id
        and project.queue_stream is not None
        and queue_event_name(project.queue_stream) == incoming.name
    )


def _skipped(entry: WorkflowEntry, reason: str, definitions: TenantDefinitions) -> dict[str, str]:
    return {"workflow": entry.name, "project": definitions.projects[entry.project].slug, "reason": reason}


def _texts(runs: Iterable[UUID]) -> list[str]:
    return [ulid_text(run) for run in runs]


def event_columns(plans: Sequence[EventPlan]) -> list[list[Any]]:
    """The arrays of `rt.store_events_v1`."""
    return [
        [plan.id for plan in plans],
        [plan.incoming.name for plan in plans],
        [plan.incoming.data for plan in plans],
        [plan.ts for plan in plans],
        [plan.incoming.event_id if plan.incoming.src == "u" else None for plan in plans],
        [plan.incoming.source for plan in plans],
        [plan.incoming.project for plan in plans],
        [plan.incoming.run for plan in plans],
        [plan.incoming.test for plan in plans],
        [plan.effects for plan in plans],
        [plan.request.trace for plan in plans],
        [ulid_unix_ms(plan.id) for plan in plans],
    ]


def cut(events: Sequence[Incoming], definitions: TenantDefinitions) -> int:
    """How many of the first events may share one reading of the waits (rulings C25).

    An event that could cancel a run which an earlier one of them starts begins a new group.
    """
    cancelling: set[str] = set()
    for count, event in enumerate(events):
        if event.name in cancelling:
            return count
        for trigger in definitions.by_event.get(event.name, ()):
            cancelling.update(cancel_on.event for cancel_on in trigger.workflow.definition.cancel_on)
    return len(events)
