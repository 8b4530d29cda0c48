"""`ctx.trace_context`: the engine's trace headers through each door, and nothing of what is malformed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, Workflows
from runr_workflows.serving.server import Server
from sdk.python.tests.engine import envelope, execute_request

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS = {"Traceparent": TRACEPARENT, "Tracestate": "vendor=1"}
SEEN = {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
BODY = envelope(execute_request("w"))


@pytest.fixture(autouse=True)
def _workflows(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> Any:
        return [ctx.traceparent, dict(ctx.trace_context)]

    @wf.workflow("async")
    async def awaited(ctx: Context, step: AsyncStep) -> Any:
        return [ctx.traceparent, dict(ctx.trace_context)]


def output(answer: bytes | str) -> Any:
    """What the workflow returned."""
    (op,) = json.loads(answer)["ops"]
    return op["output"]


@pytest.mark.parametrize("workflow", ["w", "async"])
def test_the_headers_reach_the_workflow(wf: Workflows, workflow: str) -> None:
    _, answer = wf.handle_request(envelope(execute_request(workflow)), HEADERS)
    assert output(answer) == [TRACEPARENT, SEEN]


def test_through_the_server(wf: Workflows) -> None:
    with Server(wf.handle_request, "127.0.0.1", 0) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request("POST", "/", BODY, HEADERS)
        assert output(connection.getresponse().read()) == [TRACEPARENT, SEEN]
        connection.close()


def test_through_wsgi(wf: Workflows) -> None:
    environ = {
        "REQUEST_METHOD": "POST",
        "CONTENT_LENGTH": str(len(BODY)),
        "wsgi.input": io.BytesIO(BODY),
        "HTTP_TRACEPARENT": TRACEPARENT,
        "HTTP_TRACESTATE": "vendor=1",
    }

    def start_response(line: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
        assert line.startswith("200")

    assert output(b"".join(wf.wsgi()(environ, start_response))) == [TRACEPARENT, SEEN]


async def test_through_asgi(wf: Workflows) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    await wf.asgi()({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive, send)
    assert output(sent[1]["body"]) == [TRACEPARENT, SEEN]


def test_through_a_handler(wf: Workflows) -> None:
    assert output(wf.handler({"body": BODY.decode(), "headers": HEADERS})["body"]) == [TRACEPARENT, SEEN]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"tracestate": "vendor=1"},
        {"traceparent": ""},
        {"traceparent": "nonsense", "tracestate": "vendor=1"},
        {"traceparent": TRACEPARENT.upper()},
        {"traceparent": "ff" + TRACEPARENT[2:]},
        {"traceparent": TRACEPARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)},
        {"traceparent": TRACEPARENT.replace("b7ad6b7169203331", "0" * 16)},
        {"traceparent": TRACEPARENT + "\nX: y"},
    ],
)
def test_without_a_well_formed_traceparent_there_is_none(wf: Workflows, headers: Mapping[str, str]) -> None:
    _, answer = wf.handle_request(BODY, headers)
    assert output(answer) == [None, {}]
