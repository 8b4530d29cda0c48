"""Carry out marks one by one: what cannot be carried out is logged, stays, and holds up no other, of this tenant or
another.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.store.database import Database
from services.core.store.queries import queries

log = logging.getLogger(__name__)


async def sweep_marks(
    database: Database,
    query: str,
    carry_out: Callable[[asyncpg.Record], Awaitable[None]],
    *,
    min_age_ms: int,
    limit: int,
) -> int:
    """Read the marks that the engine's `query` finds, `limit` at a time, each once. Returns how many were carried out.

    The query takes the least age, the limit and the id after which to go on. Raises Unavailable.
    """
    done = after = 0
    while True:
        async with database.connection() as connection:
            rows = await connection.fetch(queries("engine")[query], min_age_ms, limit, after)
        for row in rows:
            after = row["id"]
            try:
                await carry_out(row)
            except Unavailable:
                raise
            except Exception:
                log.exception("a mark cannot be carried out", extra={"mark": row["id"], "found_by": query})
            else:
                done += 1
        if len(rows) < limit:
            return done
