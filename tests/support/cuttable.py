"""A way to a server that can be cut on the client's side alone: the server goes on with what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit, urlunsplit


@contextlib.asynccontextmanager
async def cuttable(url: str) -> AsyncIterator[tuple[str, Callable[[], None]]]:
    """Another URL of the same server, and what breaks all connections made over it so far."""
    parts = urlsplit(url)
    pipes: set[asyncio.Task[None]] = set()
    clients: list[asyncio.StreamWriter] = []
    servers: list[asyncio.StreamWriter] = []

    async def pump(client: asyncio.StreamReader, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
            if reader is not client:
                writer.close()  # what the server ends is over; what the client ends by being cut is not

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(parts.hostname, parts.port)
        clients.append(writer)
        servers.append(up_writer)
        pipes.update(asyncio.create_task(pump(reader, *way)) for way in ((reader, up_writer), (up_reader, writer)))

    def cut() -> None:
        for client in clients:
            client.transport.abort()
        clients.clear()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield urlunsplit(parts._replace(netloc="@".join([*parts.netloc.split("@")[:-1], address]))), cut
    finally:
        listener.close()
        for each in (*clients, *servers):
            each.transport.abort()
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
