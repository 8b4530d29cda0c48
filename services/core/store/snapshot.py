"""Reads for people: everything a reader sees is of one moment, and no reader may hold the engine up.

A run moves between `rt.live` and its tenant's `ends`. Statements of READ COMMITTED could miss it or see it twice; in a
snapshot they cannot. The time limit is short because an open snapshot holds back vacuum for everybody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from services.core.store.database import Database
from services.core.store.queries import queries

READ_TIMEOUT_S = 5.0


@asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """A connection inside a read-only transaction that sees one moment; every statement has at most 5 s.

    Plans are made for the values at hand: a generic plan of a list cannot know how rare what is asked for is.
    """
    async with database.connection() as connection:
        # Several statements in one message: one round trip instead of three.
        await connection.execute(queries("snapshot")["begin"])
        try:
            yield connection
        finally:
            if not connection.is_closed():
                await connection.execute(queries("snapshot")["rollback"])
