"""Reading usage: what is folded and what is not yet (rulings C27)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import asyncpg

from services.core.store.queries import queries, tenant_query
from services.core.store.snapshot import READ_TIMEOUT_S


async def today(connection: asyncpg.Connection) -> date:
    """The day in UTC by the engine's clock."""
    day: date = await connection.fetchval(queries("usage")["today"])
    return day


async def usage_sums(
    connection: asyncpg.Connection, tenant: int, project: int | None, since: date, until: date
) -> Sequence[asyncpg.Record]:
    """`runs` and `steps` of each day (`is_day`, `day`) and each workflow (`project`, `workflow`) that has any."""
    statement = tenant_query("usage", "sums", tenant)
    return list(await connection.fetch(statement, tenant, since, until, project, timeout=READ_TIMEOUT_S))
