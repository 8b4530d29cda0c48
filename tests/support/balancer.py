"""What stands before several executors: each connection goes to one of those that listen, by chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def balanced(addresses: Sequence[str], chance: random.Random) -> AsyncIterator[str]:
    """An address whose connections go to one of these."""
    writers: set[asyncio.StreamWriter] = set()
    pipes: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()
        writers.discard(writer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        for address in chance.sample(addresses, len(addresses)):
            host, _, port = address.rpartition(":")
            with suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection(host, int(port))
                writers.add(up_writer)
                for way in ((reader, up_writer), (up_reader, writer)):
                    pipe = asyncio.create_task(pump(*way))
                    pipes.add(pipe)
                    pipe.add_done_callback(pipes.discard)
                return
        writer.transport.abort()
        writers.discard(writer)

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        listener.close()
        for writer in list(writers):
            writer.transport.abort()
        for pipe in list(pipes):
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
