"""Who waits for a lock in the test session's own server."""

from __future__ import annotations

import asyncpg

from tests.support.waiting import until


async def held_up(connection: asyncpg.Connection, count: int = 1) -> None:
    """Wait until so many transactions wait for a lock. `connection` may be in a transaction itself."""
    await until(lambda: connection.fetchval("select count(*) >= $1 from pg_locks where not granted", count))
