"""The page about web frameworks: what it mounts answers the engine, and leaves everything else to the application."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Mapping
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
import runr_workflows

from sdk.python.tests.engine import KEY, NOW, FakeEngine, Handle, envelope
from tests.support.page_programs import execute
from tests.support.pages import page

PATH = "/api/workflows"
STRANGE = envelope('{"type": "introspect"}', key="of somebody else")


@pytest.fixture
def names() -> dict[str, Any]:
    """What the blocks of the page define."""
    original = runr_workflows.Workflows
    return execute(page("docs/how-to/web-frameworks.md"), lambda: original(signing_key=KEY, clock=lambda: NOW))


def through_wsgi(app: WSGIApplication, path: str) -> Handle:
    """POST by a server for WSGI."""

    def handle(body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        said: list[str] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
            said.append(status)

        sent = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "CONTENT_LENGTH": str(len(body))}
        answer = b"".join(app({**environ, **sent, "wsgi.input": io.BytesIO(body)}, start))
        return int(said[0].split()[0]), answer

    return handle


def through_asgi(app: Any, path: str) -> Handle:
    """POST by a server for ASGI."""

    def handle(body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        asyncio.run(app({"type": "http", "method": "POST", "path": path, "headers": raw}, receive, send))
        return sent[0]["status"], sent[1]["body"]

    return handle


def other_wsgi(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [f"the application at {environ['PATH_INFO']}".encode()]


async def other_asgi(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"the application at {scope['path']}".encode()})


@pytest.mark.parametrize("path", [PATH, f"{PATH}/"])
def test_wsgi_beside_an_application(names: dict[str, Any], path: str) -> None:
    app = names["with_workflows"](other_wsgi)
    assert FakeEngine(through_wsgi(app, path)).run("hello").output == "Hello, world!"
    assert through_wsgi(app, path)(STRANGE, {})[0] == 401
    assert through_wsgi(app, "/api/other")(b"", {}) == (200, b"the application at /api/other")


@pytest.mark.parametrize("path", [PATH, f"{PATH}/"])
def test_asgi_beside_an_application(names: dict[str, Any], path: str) -> None:
    app = names["beside"](other_asgi)
    assert FakeEngine(through_asgi(app, path)).run("hello").output == "Hello, world!"
    assert through_asgi(app, path)(STRANGE, {})[0] == 401
    assert through_asgi(app, "/api/other")(b"", {}) == (200, b"the application at /api/other")
    names["wf"].close()


def test_a_transport_of_your_own(names: dict[str, Any]) -> None:
    seen: list[dict[str, str]] = []

    def handle(body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        status, content, answered = asyncio.run(names["answer"](body, {**headers, "X-RunR-Request-Id": "r-1"}))
        seen.append({name.lower(): value for name, value in answered.items()})
        return status, content

    assert FakeEngine(handle).run("hello").output == "Hello, world!"
    assert all(each["content-type"].startswith("application/json") for each in seen)
    names["wf"].close()
