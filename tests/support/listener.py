"""A listening socket of a test whose connections all end with it, those too that nobody has begun to serve yet."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from services.core.runtime.accepting import accept_no_more

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """Runs `serve` for each connection, closes the connection afterwards, and at `stop` cuts what is left.

    The coroutine that `asyncio.start_server` would start by itself is not enough: one that is cancelled before its
    first turn never gets to close its connection. And a socket whose server is closed before it has become a connection
    is lost by asyncio.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._served: set[asyncio.Task[None]] = set()
        self._transports: list[asyncio.WriteTransport] = []

    async def start(self, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(self._accept, host, port, ssl=tls)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Refuse connections from now on and cut those that are open; once stopped, nothing again."""
        server, self._server = self._server, None
        if server is None:
            return
        await accept_no_more(server)
        server.close()
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)
        for transport in self._transports:
            if not transport.is_closing():  # over TLS, one that is closed cannot be aborted before Python 3.11.4
                transport.abort()
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._transports.append(writer.transport)
        task = asyncio.ensure_future(self._serve_quietly(reader, writer))
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _serve_quietly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._serve(reader, writer)


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """The address of a listener on the loopback interface."""
    listener = Listener(serve)
    port = await listener.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await listener.stop()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what comes until it ends or breaks."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
