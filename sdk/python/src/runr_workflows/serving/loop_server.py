"""The server of async workflows: HTTP/1.1 on an event loop, with a graceful stop. No framework is needed.

A request costs a third of what it costs under a web framework, because nothing is done for it but what the engine's
requests need. Behind a public address it belongs behind a proxy or function platform, as any such server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self, cast

from ..protocol import error_answer
from .driven import Driven
from .http1 import HttpFault, answer
from .request_reader import Request, RequestReader

Handle = Callable[[bytes, Mapping[str, str]], Awaitable[tuple[int, bytes]]]

TIMEOUT_S = 300.0
"""How long a connection may be idle or a client silent in the middle of a request."""

_LINGER_S = 2.0
_TURNS_OF_AN_ACCEPT = 3
_PIPELINED_BYTES = 256 * 1024

_log = logging.getLogger("runr_workflows")


class LoopServer:
    """A server on a port of its own, 0 for a free one: `async with` listens, and drains at the end."""

    def __init__(self, handle: Handle, host: str, port: int, *, grace: float = 30) -> None:
        """`grace` is how many seconds requests in flight may take at the end."""
        self.host, self.port = host, port
        self.draining = False
        self.handle = handle
        """Gives the answer to a request, from its body and headers."""
        self.grace = grace
        self._connections: set[Connection] = set()
        self._emptied: asyncio.Future[None] | None = None
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        """Raises OSError where it cannot listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self, loop), self.host, self.port, backlog=1024)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> bool:
        """Accepts nothing more, closes idle connections, finishes requests in flight; once called, nothing again.

        Returns whether all of them ended within the grace period; the others are cancelled.
        """
        if self.draining:
            return not self._connections
        self.draining = True
        await self._accept_no_more()
        self._server.close()
        for connection in self._connections:
            connection.wake_if_idle()
        if self._connections:
            self._emptied = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.grace):
                    await self._emptied
        left = list(self._connections)
        for connection in left:
            connection.cut_off()
        return not left

    async def _accept_no_more(self) -> None:
        """What is accepted already becomes a connection: asyncio would lose its socket if the server were closed."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):  # loops of Windows
            for listener in self._server.sockets:
                loop.remove_reader(listener.fileno())
        for _ in range(_TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)

    def opened(self, connection: Connection) -> None:
        """A client has connected."""
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """A connection has ended, and nothing is executed for it."""
        self._connections.discard(connection)
        if not self._connections and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)


class Connection(asyncio.Protocol):
    """The requests of one connection, one after another."""

    def __init__(self, server: LoopServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._reader = RequestReader()
        self._transport: asyncio.Transport
        self._answering: Driven | None = None
        self._is_due = False
        """Whether what has arrived behind an answered request is about to be looked at."""
        self._writable: asyncio.Future[None] | None = None
        self._is_lost = False
        self._is_refused = False
        self._has_ended = False
        self._is_reading = True
        self._heard_at = loop.time()
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._server.opened(self)
        self._alarm = self._loop.call_later(TIMEOUT_S, self._look)
        if self._server.draining:
            self.wake_if_idle()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._heard_at = self._loop.time()
        if self._is_refused:
            return  # only taken, so that the client can read the answer before the reset
        self._reader.feed(data)
        if self._answering is None:
            self._go_on()
        elif self._reader.waiting_bytes > _PIPELINED_BYTES:
            self._is_reading = False
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`; a client that sends nothing more may still read its answer."""
        self._has_ended = True
        return self._answering is not None or self._is_due

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`. What is executed goes on: the engine will hear of it when it asks again."""
        self._is_lost = True
        self.resume_writing()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._answering is None:
            self._server.closed(self)

    def wake_if_idle(self) -> None:
        """Ends the wait for the next request; one that has arrived already is still read and answered."""
        if self._answering is not None or not self._reader.is_idle:
            return
        raw = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(raw.fileno())) as same:
            same.shutdown(socket.SHUT_RD)

    def cut_off(self) -> None:
        """Ends at once what is executed."""
        if self._answering is not None:
            self._answering.cancel()
        self._transport.abort()

    def _go_on(self) -> None:
        """Begins to answer the next request that is whole."""
        self._is_due = False
        if self._answering is not None or self._is_lost or self._is_refused:
            return
        try:
            request = self._reader.next()
        except HttpFault as fault:
            self._refuse(fault)
            return
        if request is not None:
            self._answering = Driven(self._answer(request), self._loop)
            self._answering.go_on()
        elif self._has_ended:
            self._transport.close()
        elif self._reader.wants_continue:
            self._reader.wants_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer(self, request: Request) -> None:
        keep_alive = False
        try:
            status, body = await self._server.handle(request.body, request.head.headers)
            keep_alive = request.head.keep_alive and not self._server.draining and not self._has_ended
            if not self._is_lost:
                self._transport.write(answer(status, body, request.head.headers, keep_alive=keep_alive))
            if self._writable is not None:
                await self._writable
        finally:
            self._answering = None
            self._answered(keep_alive)

    def _answered(self, keep_alive: bool) -> None:
        if self._is_lost:
            self._server.closed(self)
        elif not keep_alive:
            self._transport.close()
        else:
            self._heard_at = self._loop.time()
            if not self._is_reading:
                self._is_reading = True
                self._transport.resume_reading()
            if self._reader.waiting_bytes:
                self._is_due = True
                self._loop.call_soon(self._go_on)

    def _refuse(self, fault: HttpFault) -> None:
        if fault.status != 405:  # a browser or a health check, not the engine
            _log.warning("a request was refused with %s: %s", fault.status, fault)
        head = self._reader.head
        asked = head.headers if head is not None else {}
        self._is_refused = True
        self._transport.write(answer(fault.status, error_answer(str(fault)), asked, keep_alive=False))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(_LINGER_S, self._transport.close)

    def _look(self) -> None:
        """One timer serves all requests: it is set anew where it rang too early."""
        silent_s = self._loop.time() - self._heard_at
        if silent_s >= TIMEOUT_S and self._answering is None:
            _log.debug("a client was silent for too long")
            self._transport.close()
            return
        self._alarm = self._loop.call_later(max(1.0, TIMEOUT_S - silent_s), self._look)
