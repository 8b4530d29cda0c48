"""EventService over gRPC: requests to the engine's words and back, nothing else.

Methods that are not here answer UNIMPLEMENTED.
"""

from __future__ import annotations

from collections.abc import Sequence

from runr.workflows.v1 import event_service_pb2, event_service_pb2_grpc

from services.core.domain.errors import FieldError, InvalidInput, Malformed, TooLarge
from services.core.domain.event import EventLimits, NewEvent, validate_event
from services.core.domain.filter_rule import check_event_filter
from services.core.domain.json_text import payload_text
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.dedupe import Accepted
from services.core.rpc import convert_event
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.convert_run import id_of
from services.core.rpc.id_paging import id_after, id_token
from services.core.rpc.paging import page_size
from services.core.runtime.ids import ulid_text
from services.core.runtime.off_loop import OffLoop
from services.core.store.events import EventReader
from services.ingest.queue_sink import QueueSink

_MAX_RUN_IDS = 1_000


class EventService(event_service_pb2_grpc.EventServiceServicer):
    """Accepts and shows events."""

    def __init__(self, acceptor: EventAcceptor, reader: EventReader, limits: EventLimits, sink: QueueSink) -> None:
        self._acceptor = acceptor
        self._off_loop = OffLoop("events")
        self._sink = sink
        self._reader = reader
        self._limits = limits

    async def SendEvents(
        self, request: event_service_pb2.SendEventsRequest, context: object
    ) -> event_service_pb2.SendEventsResponse:
        """See the proto."""
        # A request of megabytes must not hold up the others.
        events = await self._off_loop.run(request.ByteSize(), _valid_events, request.events, self._limits)
        incoming = [
            Incoming(name=event.name, data=event.data, event_id=event.id, ts=event.ts, test=request.test)
            for event in events
        ]
        trace = current_call().traceparent or None
        accepted = await self._acceptor.accept(caller().tenant, incoming, trace=trace)
        return event_service_pb2.SendEventsResponse(results=[_result(each) for each in accepted])

    async def ListEvents(
        self, request: event_service_pb2.ListEventsRequest, context: object
    ) -> event_service_pb2.ListEventsResponse:
        """See the proto."""
        wanted = convert_event.event_filter(request)
        check_event_filter(wanted)
        page = await self._reader.list(
            caller().tenant, wanted, after=id_after(request), limit=page_size(request.page_size)
        )
        return event_service_pb2.ListEventsResponse(
            events=[convert_event.event(event) for event in page.events],
            next_page_token=id_token(request, page.next),
        )

    async def GetEvent(
        self, request: event_service_pb2.GetEventRequest, context: object
    ) -> event_service_pb2.GetEventResponse:
        """See the proto."""
        event = await self._reader.one(caller().tenant, id_of(request.event_id, "event"))
        return event_service_pb2.GetEventResponse(event=convert_event.event(event))

    async def DeliverQueueMessage(
        self, request: event_service_pb2.DeliverQueueMessageRequest, context: object
    ) -> event_service_pb2.DeliverQueueMessageResponse:
        """See the proto."""
        accepted = await self._sink.deliver(
            request.tenant,
            request.project,
            request.token,
            request.entry_id,
            request.fields,
            trace=current_call().traceparent or None,
        )
        return event_service_pb2.DeliverQueueMessageResponse(result=_result(accepted))


def _valid_events(events: Sequence[event_service_pb2.NewEvent], limits: EventLimits) -> list[NewEvent]:
    """The events of a request, all of them valid. Raises InvalidInput, or the fitting kind of it, with every fault."""
    if not events:
        raise InvalidInput.of("events", "must hold at least one event")
    if len(events) > limits.events:
        raise InvalidInput.of("events", f"at most {limits.events} events a request, these are {len(events)}")
    valid: list[NewEvent] = []
    faults: list[FieldError] = []
    kinds: set[type[InvalidInput]] = set()
    for place, event in enumerate(events):
        try:
            valid.append(_valid_event(event, f"events[{place}]", limits))
        except InvalidInput as error:
            faults += error.errors
            kinds.add(next(kind for kind in (Malformed, TooLarge, InvalidInput) if isinstance(error, kind)))
    if faults:
        raise (kinds.pop() if len(kinds) == 1 else InvalidInput).of_all(faults)
    return valid


def _valid_event(event: event_service_pb2.NewEvent, path: str, limits: EventLimits) -> NewEvent:
    return validate_event(
        name=event.name,
        data=payload_text(event.data, root=f"{path}.data") or "{}",
        id=event.id if event.HasField("id") else None,
        ts=event.ts if event.HasField("ts") else None,
        path=path,
        limits=limits,
    )


def _result(accepted: Accepted) -> event_service_pb2.EventResult:
    return event_service_pb2.EventResult(
        id=ulid_text(accepted.id),
        name=accepted.name,
        duplicate=accepted.duplicate,
        run_ids=[ulid_text(run) for run in accepted.runs[:_MAX_RUN_IDS]],
        resumed=accepted.resumed,
        cancelled=accepted.cancelled,
    )
