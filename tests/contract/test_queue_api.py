"""The sink of the queue bridge over HTTP: what reaches the service, and what the queue's consumer is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from runr.workflows.v1 import event_service_pb2 as pb
from runr.workflows.v1 import function_service_pb2

from services.core.domain.errors import Unauthenticated, Unavailable
from tests.support.http_gateway import BOUNDS, gateway

TOKEN = "ab" * 20
PATH = f"/api/internal/workflows/queue/acme/orders/{TOKEN}"


class Service:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.requests: list[pb.DeliverQueueMessageRequest] = []

    async def __call__(self, request: pb.DeliverQueueMessageRequest, context: Any) -> pb.DeliverQueueMessageResponse:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        result = pb.EventResult(id="01J", name="queue/orders", duplicate=True, run_ids=["01K"], resumed=2, cancelled=1)
        return pb.DeliverQueueMessageResponse(result=result)


async def test_a_message_needs_no_token_but_that_of_its_address() -> None:
    service = Service()
    async with gateway({"event.DeliverQueueMessage": service}) as client:
        raw = b'{"id": "1700-0", "fields": {"price": 1.0, "big": 123456789012345678901234567890}}'
        answer = await client.call("POST", PATH, raw=raw, token=None)
    assert answer.status == 200
    assert answer.json == {
        "id": "01J",
        "name": "queue/orders",
        "duplicate": True,
        "runs": ["01K"],
        "resumed": 2,
        "cancelled": 1,
    }
    (request,) = service.requests
    assert request == pb.DeliverQueueMessageRequest(
        tenant="acme",
        project="orders",
        token=TOKEN,
        entry_id="1700-0",
        fields=b'{"price": 1.0, "big": 123456789012345678901234567890}',
    )


@pytest.mark.parametrize(("error", "status"), [(Unavailable("away"), 503), (Unauthenticated("unknown"), 401)])
async def test_what_was_not_accepted_is_not_answered_as_if_it_were(error: Exception, status: int) -> None:
    async with gateway({"event.DeliverQueueMessage": Service(error)}) as client:
        answer = await client.call("POST", PATH, body={"id": "1-0", "fields": {}}, token=None)
    problem = answer.problem(status)
    assert TOKEN not in json.dumps(problem)
    if status == 503:
        assert answer.headers["Retry-After"]


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {"id", "fields"}),
        ({"id": "", "fields": {}}, {"id"}),
        ({"id": 7, "fields": {}}, {"id"}),
        ({"id": "1-0", "fields": [1]}, {"fields"}),
        ({"id": "1-0", "fields": {}, "stream": "orders"}, {"stream"}),
    ],
)
async def test_a_body_of_another_shape_is_refused(body: Any, faults: set[str]) -> None:
    service = Service()
    async with gateway({"event.DeliverQueueMessage": service}) as client:
        assert set((await client.call("POST", PATH, body=body, token=None)).faults()) == faults
        (await client.call("POST", PATH, raw=b"{", token=None)).problem(400)
    assert service.requests == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("https://api.example.com/api/internal/x", "https://api.example.com/api/internal/x"),
        ("/api/internal/x", "http://10.0.0.7:8080/api/internal/x"),
        (None, None),
    ],
)
async def test_without_a_public_url_the_address_is_below_the_gateways_own(said: str | None, shown: str | None) -> None:
    async def app(_: Any, __: Any) -> function_service_pb2.GetAppResponse:
        return function_service_pb2.GetAppResponse(
            app=function_service_pb2.App(project="default", queue_bridge_url=said)
        )

    bounds = replace(BOUNDS, own_url="http://10.0.0.7:8080")
    async with gateway({"function.GetApp": app}, bounds=bounds) as client:
        answer = await client.call("GET", "/api/projects/default/workflows/app")
    assert answer.json["queue_bridge_url"] == shown
