"""One connection: one request at a time, written once, and its answer (RFC 9112).

What arrives while no answer is awaited belongs to nobody: the connection is closed.
"""

from __future__ import annotations

import asyncio
import select
import socket
from typing import NamedTuple, Protocol, cast

from services.executor.lean_http.answer import AnswerParser
from services.executor.lean_http.errors import ConnectionBroken, HttpError, OutOfTime

_SINGLE_WRITE_BYTES = 64 * 1024
_WRITE_BYTES = 256 * 1024


class Origin(NamedTuple):
    """What a connection leads to: only requests with the same one may share it."""

    scheme: str
    host: str
    port: int
    verify_tls: bool


class Owner(Protocol):
    """Whoever holds connections, and is told what happens to them."""

    def opened(self, connection: Connection) -> None:
        """The connection can be used."""
        ...

    def surplus(self, connection: Connection) -> None:
        """Bytes came that nobody had asked for; the connection is closed."""
        ...

    def lost(self, connection: Connection) -> None:
        """The connection has ended."""
        ...


class Connection(asyncio.Protocol):
    """A connection to a server."""

    def __init__(self, origin: Origin, raw: socket.socket, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        """`raw` is the socket below, also where TLS is spoken above it."""
        self.origin = origin
        self.is_closed = False
        self.exchanges = 0
        """Requests that were answered on this connection."""
        self.opened_at = self.idle_since = loop.time()
        self.idle_s = 0.0
        """How long it may be idle, for whoever keeps it."""
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._is_open = False  # as far as the owner knows
        self._poll = select.poll()
        self._poll.register(raw, select.POLLIN)
        self._parser: AnswerParser | None = None
        self._answered: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._is_written = False
        self._deadline = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def is_written(self) -> bool:
        """Whether the last request left whole. A server may answer before it has read all of it."""
        return self._is_written

    @property
    def is_quiet(self) -> bool:
        """Whether the server has neither closed nor said anything, asked of the socket itself.

        The event loop may not have come to read it yet.
        """
        return not self.is_closed and not self._poll.poll(0)

    async def exchange(self, head: bytes, body: bytes, parser: AnswerParser, deadline: float) -> None:
        """Write a request and read its answer into `parser`. `deadline` is a time of the loop.

        Raises HttpError. The connection is closed if this raises, also if it is cancelled.
        """
        if self._transport is None or self.is_closed:
            raise ConnectionBroken("the connection was closed before the request")
        self._parser = parser
        self._is_written = False
        self._answered = self._loop.create_future()
        self._set_alarm(deadline)
        try:
            if len(body) <= _SINGLE_WRITE_BYTES:
                self._transport.write(head + body)
                self._is_written = True
            else:
                await self._write(self._transport, head, memoryview(body))
            await self._answered
        except BaseException:
            self.abort()
            raise
        finally:
            self._parser = None
        self.exchanges += 1

    def close(self) -> None:
        """Close politely: over TLS the server is told."""
        if self._transport is not None and not self.is_closed:
            self._retire()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._retire()
            self._transport.abort()

    def abandon(self) -> None:
        """Close a connection that its maker gave up. uvloop does not always say then that it was lost."""
        self.abort()
        self._tell_lost()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # A cast, because uvloop's transports are no subclasses.
        self._transport = cast(asyncio.Transport, transport)
        self._is_open = True
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        parser = self._parser
        if parser is None:
            if not self.is_closed:
                self.abort()
                self._owner.surplus(self)
            return
        try:
            if parser.feed(data):
                self._finish(None)
        except HttpError as error:
            self._finish(error)

    def eof_received(self) -> None:
        """See `asyncio.Protocol`; the transport closes itself."""
        self._retire()
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._retire()
        self._end(exc)
        self._tell_lost()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._writable is not None:
            _resolve(self._writable, None)
            self._writable = None

    async def _write(self, transport: asyncio.Transport, head: bytes, body: memoryview) -> None:
        """Write a big request no faster than it leaves. Stops where the answer is there before."""
        transport.write(head)
        for start in range(0, len(body), _WRITE_BYTES):
            transport.write(body[start : start + _WRITE_BYTES])
            if self._writable is not None:
                await self._writable
            if self._parser is None:
                return
        self._is_written = True

    def _finish(self, error: HttpError | None) -> None:
        self._parser = None
        if self._answered is not None:
            _resolve(self._answered, error)
        if self._writable is not None:
            _resolve(self._writable, None)

    def _end(self, cause: Exception | None) -> None:
        """The server has closed or the connection broke."""
        parser = self._parser
        if parser is None:
            return
        try:
            parser.end()
        except HttpError as error:
            self._finish(error if cause is None else ConnectionBroken(f"{error}: {cause}"))
        else:
            self._finish(None if cause is None else ConnectionBroken(str(cause)))

    def _retire(self) -> None:
        self.is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _tell_lost(self) -> None:
        if self._is_open:
            self._is_open = False
            self._owner.lost(self)

    def _set_alarm(self, deadline: float) -> None:
        """One timer serves many requests: it is set anew only where it would ring too late."""
        self._deadline = deadline
        if self._alarm is not None:
            if self._alarm.when() <= deadline:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._parser is None:
            return
        if self._loop.time() < self._deadline:
            self._set_alarm(self._deadline)
        else:
            self._finish(OutOfTime("the answer was not complete in time"))


def _resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
