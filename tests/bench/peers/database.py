"""A Postgres for a peer: the embedded one, with the settings that the engine has."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from services.embedded.home import Home, temporary_folder
from services.embedded.stack import EmbeddedStack
from tests.bench.processes import descendants


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database, and the process of its server."""

    url: str
    pid: int

    def pids(self) -> list[int]:
        """The server's processes."""
        return descendants(self.pid)


@asynccontextmanager
async def fresh_database() -> AsyncIterator[Database]:
    """A server of its own with an empty database, gone afterwards."""
    with temporary_folder("bench-peer") as folder:
        stack = await asyncio.to_thread(EmbeddedStack, Home(folder), os.environ, ["postgres"])
        try:
            connection = await asyncpg.connect(stack.urls["postgres"])
            try:
                await connection.execute("create database peer")
            finally:
                await connection.close()
            pid = stack.pids["postgres"]
            assert pid is not None
            yield Database(f"{stack.urls['postgres'].rpartition('/')[0]}/peer", pid)
        finally:
            await asyncio.to_thread(stack.close)
