"""Events in JSON."""

from __future__ import annotations

import msgspec
from runr.workflows.v1 import event_service_pb2, resources_pb2

from services.core.rpc import convert
from services.gateway.views.json_parts import optional, payload, time_text


class EventResultView(msgspec.Struct, kw_only=True):
    """What one event of a request came to."""

    id: str
    name: str
    duplicate: bool
    runs: list[str]
    resumed: int
    cancelled: int


class EventsAcceptedView(msgspec.Struct, kw_only=True):
    """The answer to POST /events."""

    ids: list[str]
    events: list[EventResultView]


class SkippedView(msgspec.Struct, kw_only=True):
    """A workflow that the event would have started but did not."""

    workflow: str
    project: str
    reason: str
    run_id: str | None


class EventView(msgspec.Struct, kw_only=True):
    """An event. The lists of run ids hold at most the first 1,000; `data` is null in lists."""

    id: str
    name: str
    data: msgspec.Raw | None
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
    skipped: list[SkippedView]
    trace_id: str | None


def accepted_view(response: event_service_pb2.SendEventsResponse) -> EventsAcceptedView:
    """The answer to POST /events."""
    events = [result_view(result) for result in response.results]
    return EventsAcceptedView(ids=[event.id for event in events], events=events)


def result_view(result: event_service_pb2.EventResult) -> EventResultView:
    """What one event came to."""
    return EventResultView(
        id=result.id,
        name=result.name,
        duplicate=result.duplicate,
        runs=list(result.run_ids),
        resumed=result.resumed,
        cancelled=result.cancelled,
    )


def event_view(event: resources_pb2.Event) -> EventView:
    """An event with what it did."""
    effects = event.effects
    return EventView(
        id=event.id,
        name=event.name,
        data=payload(event, "data"),
        ts=event.ts,
        event_id=optional(event, "event_id"),
        source=convert.word(resources_pb2.EventSource, event.source),
        project=optional(event, "project"),
        run_id=optional(event, "run_id"),
        test=event.test,
        received_at=time_text(event, "received_at"),
        runs=list(effects.started_run_ids),
        resumed=effects.resumed,
        cancelled=effects.cancelled,
        started=effects.started,
        resumed_runs=list(effects.resumed_run_ids),
        cancelled_runs=list(effects.cancelled_run_ids),
        skipped=[
            SkippedView(
                workflow=skip.workflow, project=skip.project, reason=skip.reason, run_id=optional(skip, "run_id")
            )
            for skip in effects.skipped
        ],
        trace_id=event.trace_id or None,
    )
