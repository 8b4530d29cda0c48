"""Server-Sent Events: a streaming method as an HTTP answer that its client can lose and go on with.

The next message of the method is read when its client has taken the one before, so a slow client holds one. A service
that ends the stream before its time, because it drains or has gone, is called again from the last event on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import msgspec
from aiohttp import web

from services.core.domain.errors import DomainError, Unavailable
from services.core.runtime.off_loop import OffLoop
from services.gateway.backends import Backends, Credentials
from services.gateway.endpoint import Bounds, Handler, credentials_of, input_of
from services.gateway.observe import REQUEST_TRACE, TRACE_HEADER
from services.gateway.route import Events, Route, ServerEvent

log = logging.getLogger(__name__)

DRAINING = web.AppKey("draining", asyncio.Event)
"""Set when the server takes no more: streams end, and their clients come again elsewhere."""

BEAT_S = 15.0
"""So often something is sent: what is between client and gateway must not take the stream for a dead one."""

_RECONNECT_MS = 1_000
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 2.0)
# A browser that is refused does not come again: a service that is being replaced is waited for here too.
_FIRST_PAUSES_S = _PAUSES_S[:4]
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would keep events back
}


def stream_endpoint(route: Route, backends: Backends, bounds: Bounds, *, write_timeout_s: float) -> Handler:
    """The aiohttp handler of a route with `events`. Raises DomainError before the first event; 204 when none comes."""
    off_loop = OffLoop("streams")
    assert route.events is not None
    kind = route.events

    async def handle(request: web.Request) -> web.StreamResponse:
        credentials = credentials_of(request)
        _, message = await input_of(route, request, bounds, off_loop)
        message = kind.resume(message, request.headers.get("Last-Event-ID", ""))
        following = _follow(route.rpc, kind, message, backends, credentials)
        draining = request.app[DRAINING]
        async with contextlib.aclosing(following) as events:
            first = await anext(events, None)
            if first is None:
                return web.Response(status=204)
            response = web.StreamResponse(headers=_HEADERS | {TRACE_HEADER: request[REQUEST_TRACE].trace_id})
            sink = _Sink(request, response, write_timeout_s)
            try:
                await sink.send(f"retry: {_RECONNECT_MS}\n\n".encode() + _bytes_of(first))
                # Closed first: the next event may be on its way in it, and what is read cannot be closed.
                async with contextlib.aclosing(_chunks(events, draining)) as chunks:
                    async for chunk in chunks:
                        await sink.send(chunk)
            except (DomainError, ConnectionError) as error:
                # It has begun: all that can be said is that it ends. Its client asks again and is told why.
                log.debug("a stream of events ended early: %s", error)
            return response

    return handle


async def _follow(
    rpc: str, kind: Events, message: Any, backends: Backends, credentials: Credentials
) -> AsyncGenerator[ServerEvent, None]:
    """The events of a method, over as many calls as it takes. Raises DomainError."""
    pauses: Iterator[float] = iter(_FIRST_PAUSES_S)
    begun = False
    while True:
        failed: Unavailable | None = None
        try:
            async with contextlib.aclosing(backends.stream(rpc, message, credentials=credentials)) as answers:
                async for answer in answers:
                    event = kind.event(answer)
                    yield event
                    if event.is_last:
                        return
                    if event.id:
                        message, begun, pauses = kind.resume(message, event.id), True, iter(_PAUSES_S)
            if not begun:
                return
        except Unavailable as error:
            failed = error
        pause = next(pauses, None)
        if pause is None:
            raise failed or Unavailable("the service ends the stream at once")
        await asyncio.sleep(pause)


async def _chunks(events: AsyncIterator[ServerEvent], draining: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """The events as they are sent, and a beat where there is none for a while. Ends in a drain."""
    over = asyncio.create_task(draining.wait())
    coming: asyncio.Task[ServerEvent | None] | None = None
    try:
        while not draining.is_set():
            coming = coming or asyncio.create_task(_next(events))
            waited: set[asyncio.Task[Any]] = {coming, over}
            await asyncio.wait(waited, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                event, coming = coming.result(), None
                if event is None:
                    return
                yield _bytes_of(event)
            elif not draining.is_set():
                yield b": \n\n"
    finally:
        over.cancel()
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})


async def _next(events: AsyncIterator[ServerEvent]) -> ServerEvent | None:
    return await anext(events, None)


class _Sink:
    """Where the bytes go. What its client does not take in time cuts the connection."""

    def __init__(self, request: web.Request, response: web.StreamResponse, timeout_s: float) -> None:
        self._request = request
        self._response = response
        self._timeout_s = timeout_s

    async def send(self, chunk: bytes) -> None:
        """Returns when the client has room for more. Raises ConnectionError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                if not self._response.prepared:
                    await self._response.prepare(self._request)
                await self._response.write(chunk)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the client does not take its events") from None


def _bytes_of(event: ServerEvent) -> bytes:
    """An event as it travels. JSON of ours is one line: payloads of users may have been stored with line ends."""
    data = msgspec.json.encode(event.body).replace(b"\r", b" ").replace(b"\n", b" ")
    id = f"id: {event.id}\n".encode() if event.id else b""
    return b"event: " + event.name.encode() + b"\n" + id + b"data: " + data + b"\n\n"
