"""ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from ..protocol import MAX_BODY_BYTES, answer_headers, error_answer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class AsgiApp:
    """An ASGI 3 application. Async workflows run on the server's loop, sync ones in threads."""

    def __init__(self, handle: Callable[[bytes, Mapping[str, str]], Awaitable[tuple[int, bytes]]]) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or the events of the server's life."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["method"] != "POST":
            await _send(send, 405, error_answer("engine requests are POST"), {})
        else:
            await self._exchange(_headers(scope), receive, send)

    async def _exchange(self, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > MAX_BODY_BYTES:
                fault = error_answer(f"the body is larger than the limit of {MAX_BODY_BYTES} bytes")
                await _send(send, 413, fault, headers)
                return
        await _send(send, *await self._handle(b"".join(chunks), headers), headers)


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _send(send: Send, status: int, body: bytes, request_headers: Mapping[str, str]) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in answer_headers(request_headers).items()]
    headers.append((b"content-length", str(len(body)).encode()))
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
