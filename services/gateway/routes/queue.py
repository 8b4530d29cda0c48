"""The sink of the queue bridge (engine section 3): where a project's queue consumer delivers messages."""

from __future__ import annotations

from runr.workflows.v1 import event_service_pb2

from services.core.domain.event import MAX_ID_BYTES
from services.gateway.kinds import JSON_OBJECT, text
from services.gateway.route import Answer, Input, Route
from services.gateway.shape import Field, Shape
from services.gateway.views.event import EventResultView, result_view


def _request(found: Input) -> event_service_pb2.DeliverQueueMessageRequest:
    return event_service_pb2.DeliverQueueMessageRequest(
        tenant=found.path["tenant"],
        project=found.path["project"],
        token=found.path["token"],
        entry_id=found.body["id"],
        fields=found.body["fields"],
    )


ROUTES = (
    Route(
        method="POST",
        path="/internal/workflows/queue/{tenant}/{project}/{token}",
        rpc="/runr.workflows.v1.EventService/DeliverQueueMessage",
        summary="The sink of the queue bridge, authenticated by the token in the path",
        request=_request,
        answer=lambda response, _: Answer(result_view(response.result)),
        view=EventResultView,
        body=Shape((Field("id", text(MAX_ID_BYTES), required=True), Field("fields", JSON_OBJECT, required=True))),
    ),
)
