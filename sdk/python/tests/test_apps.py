"""WSGI, ASGI and function platforms: the same answers through each door."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
import wsgiref.simple_server
import wsgiref.validate
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, Workflows
from runr_workflows.protocol import MAX_BODY_BYTES
from sdk.python.tests.engine import FakeEngine, envelope, execute_request, signature

TEXT = execute_request("w")
BODY = envelope(TEXT)
UNSIGNED = json.dumps({"runr_workflow": "v1", "request": TEXT}).encode()


@pytest.fixture(autouse=True)
def _workflows(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        return step.run("a", lambda: "done")

    @wf.workflow("async")
    async def awaited(ctx: Context, step: AsyncStep) -> str:
        return await step.run("a", lambda: "done")


class QuietHandler(wsgiref.simple_server.WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def wsgi_port(wf: Workflows) -> Iterator[int]:
    server = wsgiref.simple_server.make_server(
        "127.0.0.1", 0, wsgiref.validate.validator(wf.wsgi()), handler_class=QuietHandler
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def post(port: int, body: bytes, headers: dict[str, str] | None = None, method: str = "POST") -> tuple[int, bytes]:
    """One exchange."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, "/any/path", body, headers or {})
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


def test_wsgi_runs_workflows(wsgi_port: int) -> None:
    engine = FakeEngine(lambda body, headers: post(wsgi_port, body))

    assert engine.run("w").output == "done"
    assert engine.run("async").output == "done"
    assert post(wsgi_port, UNSIGNED, {"X-RunR-Signature": signature(TEXT)})[0] == 200
    assert post(wsgi_port, UNSIGNED)[0] == 401
    assert post(wsgi_port, b"")[0] == 400
    assert post(wsgi_port, b"", method="GET")[0] == 405


def test_wsgi_repeats_the_id_of_the_request(wsgi_port: int) -> None:
    connection = HTTPConnection("127.0.0.1", wsgi_port, timeout=5)
    for body, status in ((BODY, 200), (b"", 400)):
        connection.request("POST", "/", body, {"X-RunR-Request-Id": f"id-{status}"})
        response = connection.getresponse()
        assert (response.status, response.headers["X-RunR-Request-Id"]) == (status, f"id-{status}")
        connection.close()


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"CONTENT_LENGTH": str(len(BODY))}, 200),
        ({"wsgi.input_terminated": True}, 200),
        ({}, 400),
        ({"CONTENT_LENGTH": "abc"}, 400),
        ({"CONTENT_LENGTH": str(MAX_BODY_BYTES + 1)}, 413),
    ],
)
def test_wsgi_reads_what_the_server_promises(wf: Workflows, environ: dict[str, Any], status: int) -> None:
    started: list[str] = []

    def start_response(line: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
        started.append(line)

    list(wf.wsgi()({"REQUEST_METHOD": "POST", "wsgi.input": io.BytesIO(BODY), **environ}, start_response))

    assert started[0].startswith(str(status))


async def asgi(
    app: Any, *messages: dict[str, Any], method: str = "POST", headers: list[tuple[bytes, bytes]] | None = None
) -> tuple[int, bytes]:
    """One exchange with an ASGI application, whose answer repeats the request's id if there is one."""
    sent: list[dict[str, Any]] = []
    pending = list(messages)

    async def receive() -> dict[str, Any]:
        return pending.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": "/", "headers": headers or []}, receive, send)
    if not sent:
        return 0, b""
    start, body = sent
    assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
    assert dict(start["headers"]).get(b"x-runr-request-id") == dict(headers or []).get(b"X-RunR-Request-Id")
    return start["status"], body["body"]


def message(body: bytes, more: bool = False) -> dict[str, Any]:
    """A part of a request's body."""
    return {"type": "http.request", "body": body, "more_body": more}


async def test_asgi_runs_workflows(wf: Workflows) -> None:
    app = wf.asgi()

    for name in ("w", "async"):
        status, answer = await asgi(app, message(envelope(execute_request(name))))
        assert (status, json.loads(answer)["ops"][0]["output"]) == (200, "done")
    assert (await asgi(app, message(BODY[:9], more=True), message(BODY[9:])))[0] == 200
    assert (await asgi(app, message(UNSIGNED), headers=[(b"X-RunR-Signature", signature(TEXT).encode())]))[0] == 200
    assert (await asgi(app, message(UNSIGNED)))[0] == 401
    assert (await asgi(app, message(b"")))[0] == 400
    assert (await asgi(app, method="GET"))[0] == 405
    assert (await asgi(app, message(BODY[:9], more=True), {"type": "http.disconnect"}))[0] == 0
    assert (await asgi(app, message(bytes(MAX_BODY_BYTES), more=True), message(b"x", more=True)))[0] == 413


async def test_asgi_repeats_the_id_of_the_request(wf: Workflows) -> None:
    app, headers = wf.asgi(), [(b"X-RunR-Request-Id", b"0af7651916cd43dd8448eb211c80319c")]

    assert (await asgi(app, message(BODY), headers=headers))[0] == 200
    assert (await asgi(app, message(b""), headers=headers))[0] == 400
    assert (await asgi(app, message(bytes(MAX_BODY_BYTES + 1)), headers=headers))[0] == 413


async def test_asgi_runs_async_workflows_on_the_servers_loop(wf: Workflows) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @wf.workflow("where")
    async def where(ctx: Context, step: AsyncStep) -> None:
        loops.append(asyncio.get_running_loop())

    await asgi(wf.asgi(), message(envelope(execute_request("where"))))

    assert loops == [asyncio.get_running_loop()]


async def test_asgi_lifespan_and_websockets(wf: Workflows) -> None:
    sent: list[str] = []
    events = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(events)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await wf.asgi()({"type": "lifespan"}, receive, send)
    await wf.asgi()({"type": "websocket"}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


@pytest.mark.parametrize(
    "event",
    [
        json.loads(BODY),
        {"body": BODY.decode()},
        {"body": json.loads(BODY), "headers": None},
        {"body": BODY},
        {"body": base64.b64encode(BODY).decode(), "isBase64Encoded": True},
        {"body": UNSIGNED.decode(), "headers": {"X-RunR-Signature": signature(TEXT)}},
        BODY,
        BODY.decode(),
    ],
)
def test_a_handler_takes_the_event_in_any_of_its_shapes(wf: Workflows, event: Any) -> None:
    answer = wf.handler(event, object())

    assert answer["statusCode"] == 200
    assert json.loads(answer["body"])["ops"][0]["id"] == "a"


def test_a_handler_repeats_the_id_of_the_request(wf: Workflows) -> None:
    answer = wf.handler({"body": BODY, "headers": {"x-runr-request-id": "a-1"}}, None)

    assert answer["headers"] == {"Content-Type": "application/json", "X-RunR-Request-Id": "a-1"}
    assert wf.handler(BODY, None)["headers"] == {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (None, 400),
        ({}, 400),
        ({"body": None}, 400),
        ({"body": "%", "isBase64Encoded": True}, 400),
        ({"body": "{}"}, 400),
        ({"body": UNSIGNED.decode(), "headers": {}}, 401),
    ],
)
def test_a_handler_refuses_what_is_no_request(wf: Workflows, event: Any, status: int) -> None:
    assert wf.handler(event, None)["statusCode"] == status
