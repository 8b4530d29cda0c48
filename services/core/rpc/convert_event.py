"""Events, domain → proto, and the filter of an event list the other way."""

from __future__ import annotations

from typing import cast

from runr.workflows.v1 import event_service_pb2, resources_pb2

from services.core.domain.errors import InvalidInput
from services.core.domain.event_record import EventEffects, EventFilter, EventRecord
from services.core.rpc.convert import number, timestamp, unix_ms, word
from services.core.rpc.convert_run import id_text, json_bytes
from services.core.runtime.ids import ulid_text
from services.core.runtime.traceparent import trace_id

_MAX_IDS = 1_000


def event(record: EventRecord) -> resources_pb2.Event:
    """An event."""
    return resources_pb2.Event(
        id=ulid_text(record.id),
        name=record.name,
        data=json_bytes(record.data),
        ts=record.ts,
        event_id=record.event_id,
        source=cast(resources_pb2.EventSource, number(resources_pb2.EventSource, record.source)),
        project=record.project,
        run_id=id_text(record.run),
        test=record.test,
        received_at=timestamp(record.received_ms),
        effects=_effects(record.effects),
        trace_id=trace_id(record.trace),
    )


def event_filter(request: event_service_pb2.ListEventsRequest) -> EventFilter:
    """The filter in a list request. Raises InvalidInput for a source that is none and for a time that is none."""
    source = word(resources_pb2.EventSource, request.source)
    if request.source != resources_pb2.EVENT_SOURCE_UNSPECIFIED and not source:
        raise InvalidInput.of("source", f"{request.source} is not a source of events")
    return EventFilter(
        name_prefix=request.name_prefix or None,
        source=source or None,
        project=request.project or None,
        since_ms=unix_ms(request, "since"),
        until_ms=unix_ms(request, "until"),
    )


def _effects(effects: EventEffects) -> resources_pb2.EventEffects:
    message = resources_pb2.EventEffects(
        started_run_ids=[ulid_text(run) for run in effects.runs[:_MAX_IDS]],
        resumed_run_ids=[ulid_text(run) for run in effects.resumed_runs[:_MAX_IDS]],
        cancelled_run_ids=[ulid_text(run) for run in effects.cancelled_runs[:_MAX_IDS]],
        started=len(effects.runs),
        resumed=effects.resumed,
        cancelled=effects.cancelled,
    )
    for skipped in effects.skipped:
        message.skipped.append(
            resources_pb2.SkippedStart(workflow=skipped.workflow, project=skipped.project, reason=skipped.reason)
        )
    return message
