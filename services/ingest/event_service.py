"""EventService over gRPC: requests to the engine's words and back, nothing else.

Methods that are not here answer UNIMPLEMENTED.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from runr.workflows.v1 import event_service_pb2, event_service_pb2_grpc

from services.core.domain.filter_rule import check_event_filter
from services.core.rpc import convert_event
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.convert_run import id_of
from services.core.rpc.id_paging import id_after, id_token
from services.core.rpc.paging import page_size
from services.core.store.events import EventReader
from services.ingest.queue_sink import QueueSink
from services.ingest.send_service import SendService, tell_result


class EventService(event_service_pb2_grpc.EventServiceServicer):
    """Accepts and shows events."""

    def __init__(self, sends: SendService, reader: EventReader, sink: QueueSink) -> None:
        self._sends = sends
        self._sink = sink
        self._reader = reader

    async def SendEvents(
        self, request: event_service_pb2.SendEventsRequest, context: object
    ) -> event_service_pb2.SendEventsResponse:
        """See the proto."""
        call = current_call()
        return await self._sends.send(request, caller().tenant, call.traceparent or None, id=call.id)

    async def SubmitEvents(
        self, request_iterator: AsyncIterator[event_service_pb2.SubmitEventsRequest], context: object
    ) -> AsyncIterator[event_service_pb2.SubmitEventsResponse]:
        """See the proto."""
        async for message in self._sends.serve(request_iterator):
            yield message

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
        response = event_service_pb2.DeliverQueueMessageResponse()
        tell_result(response.result, accepted)
        return response
