"""One HTTP request handed to an ASGI application whose answers are whole: what MCP's own server is mounted with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from aiohttp import web

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_HEADERS = (b"accept", b"content-type")
_OF_MCP = b"mcp-"


async def asgi_answer(application: Application, request: web.Request, body: bytes, state: Any) -> web.Response:
    """The application's answer to a request whose body was read.

    The scope has `state` as `runr`. Of the headers it has those that MCP knows: a token must not be where somebody
    else's code may log it.
    """
    started: Message = {}
    chunks: list[bytes] = []
    unread = [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        # A client that goes away ends nothing that was begun, as everywhere in this API.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        else:
            chunks.append(message.get("body", b""))

    await application(_scope(request, state), receive, send)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in started["headers"]}
    headers.pop("content-length", None)
    return web.Response(status=started["status"], body=b"".join(chunks), headers=headers)


def _scope(request: web.Request, state: Any) -> Message:
    headers = [(name.lower(), value) for name, value in request.raw_headers]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name, value) for name, value in headers if name in _HEADERS or name.startswith(_OF_MCP)],
        "client": None,
        "server": None,
        "runr": state,
    }
