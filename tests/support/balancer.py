"""What stands before several executors: each connection goes to one of those that listen, by chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.support.listener import listening, pump


@asynccontextmanager
async def balanced(addresses: Sequence[str], chance: random.Random) -> AsyncIterator[str]:
    """An address whose connections go to one of these."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for address in chance.sample(addresses, len(addresses)):
            host, _, port = address.rpartition(":")
            with suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection(host, int(port))
                break
        else:
            writer.transport.abort()
            return

        async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await pump(reader, writer)
            writer.close()

        try:
            await asyncio.gather(through(reader, up_writer), through(up_reader, writer))
        finally:
            up_writer.transport.abort()

    async with listening(serve) as address:
        yield address
