"""A way to a server that can be cut on the client's side alone: the server goes on with what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit, urlunsplit

from tests.support.listener import listening, pump


@contextlib.asynccontextmanager
async def cuttable(url: str) -> AsyncIterator[tuple[str, Callable[[], None]]]:
    """Another URL of the same server, and what breaks all connections made over it so far."""
    parts = urlsplit(url)
    clients: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(writer)
        up_reader, up_writer = await asyncio.open_connection(parts.hostname, parts.port)

        async def down() -> None:
            await pump(up_reader, writer)
            writer.close()  # what the server ends is over; what the client ends by being cut is not

        try:
            await asyncio.gather(pump(reader, up_writer), down())
        finally:
            up_writer.transport.abort()

    def cut() -> None:
        for client in clients:
            client.transport.abort()
        clients.clear()

    async with listening(serve) as address:
        yield urlunsplit(parts._replace(netloc="@".join([*parts.netloc.split("@")[:-1], address]))), cut
