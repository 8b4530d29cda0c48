"""Routes of events (engine section 3)."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import event_service_pb2, resources_pb2

from services.core.domain.event import parse_events_body
from services.core.domain.plain_events import plain_events
from services.core.rpc import convert
from services.gateway.kinds import PAGE, enum_param, flag_param, text_param, time_param
from services.gateway.route import Answer, Input, RawBody, Route
from services.gateway.views.event import EventsAcceptedView, EventView, accepted_view, event_view
from services.gateway.views.json_parts import Page, page

_SERVICE = "/runr.workflows.v1.EventService/"


_EVENT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^(?!runr/)[A-Za-z0-9._:/-]+$"},
        "data": {"type": "object"},
        "id": {"type": "string", "minLength": 1, "maxLength": 255},
        "ts": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1, "description": "Unix milliseconds."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_LIST = {"type": "array", "items": _EVENT, "minItems": 1, "maxItems": 100}
_EVENTS = RawBody(
    schema={
        "anyOf": [
            _EVENT,
            _LIST,
            {"type": "object", "properties": {"events": _LIST}, "required": ["events"], "additionalProperties": False},
        ]
    },
    example={"name": "order.created", "data": {"order_id": "o-1"}, "id": "order-o-1"},
)


def _send_request(found: Input) -> event_service_pb2.SendEventsRequest:
    request = event_service_pb2.SendEventsRequest(test=found.query.get("test", False))
    for event in plain_events(found.raw, found.events) or parse_events_body(found.raw, found.events):
        request.events.add(name=event.name, data=event.data.encode(), id=event.id, ts=event.ts)
    return request


def _list_request(found: Input) -> event_service_pb2.ListEventsRequest:
    query = found.query
    return event_service_pb2.ListEventsRequest(
        page_size=query.get("limit", 0),
        page_token=query.get("cursor", ""),
        name_prefix=query.get("name", ""),
        source=query.get("source", resources_pb2.EVENT_SOURCE_UNSPECIFIED),
        project=query.get("project_id", ""),
        since=convert.timestamp(query.get("from")),
        until=convert.timestamp(query.get("to")),
    )


def _list_answer(response: Any, _: Input) -> Answer:
    return Answer(page([event_view(event) for event in response.events], response.next_page_token))


ROUTES = (
    Route(
        method="POST",
        path="/events",
        rpc=_SERVICE + "SendEvents",
        summary="Send one event, a list of them, or an object with a list",
        request=_send_request,
        answer=lambda response, _: Answer(accepted_view(response)),
        view=EventsAcceptedView,
        query=(flag_param("test"),),
        raw_body=True,
        raw=_EVENTS,
        events_body=True,
    ),
    Route(
        method="GET",
        path="/events",
        rpc=_SERVICE + "ListEvents",
        summary="List events, newest first",
        request=_list_request,
        answer=_list_answer,
        view=Page[EventView],
        query=(
            *PAGE,
            text_param("name"),
            enum_param("source", resources_pb2.EventSource),
            text_param("project_id"),
            time_param("from"),
            time_param("to"),
        ),
        names={"project": "project_id"},
    ),
    Route(
        method="GET",
        path="/events/{event_id}",
        rpc=_SERVICE + "GetEvent",
        summary="One event with the runs it started, resumed and cancelled",
        request=lambda found: event_service_pb2.GetEventRequest(event_id=found.path["event_id"]),
        answer=lambda response, _: Answer(event_view(response.event)),
        view=EventView,
    ),
)
