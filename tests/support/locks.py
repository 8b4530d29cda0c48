"""Who waits for a lock in the test session's own server."""

from __future__ import annotations

import asyncio

import asyncpg


async def held_up(connection: asyncpg.Connection, count: int = 1) -> None:
    """Wait until so many transactions wait for a lock. `connection` may be in a transaction itself."""
    async with asyncio.timeout(30):
        while await connection.fetchval("select count(*) from pg_locks where not granted") < count:
            await asyncio.sleep(0.005)
