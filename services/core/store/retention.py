"""Old rows: which they are, and taking them away, one tenant and one batch at a time (engine section 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from services.core.store.id_range import end_id
from services.core.store.queries import queries, tenant_query

Rows = Sequence[asyncpg.Record]

_LONG_AGO = datetime(1900, 1, 1, tzinfo=UTC)
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Turn:
    """The tenant whose turn it is, and where its pass stands; `now` is the engine's clock."""

    tenant: int
    stage: str
    after_at: datetime | None
    after_id: UUID | None
    now: datetime


async def take_turn(connection: asyncpg.Connection) -> Turn | int | None:
    """Whose turn it is, held until the end of the transaction. An int: nobody's, for so many milliseconds.
    None: another process is at it.
    """
    row = await connection.fetchrow(queries("retention")["take"])
    if row is None:
        return None
    if row["tenant"] is None:
        return int(row["wait_ms"])
    await connection.execute(queries("retention")["plan_anew"])
    after_id = None if row["after_id"] is None else UUID(int=row["after_id"].int)
    return Turn(row["tenant"], row["stage"], row["after_at"], after_id, row["now"])


async def go_on(
    connection: asyncpg.Connection, tenant: int, stage: str, after_at: datetime | None, after_id: UUID | None
) -> None:
    """Where the tenant's pass stands now."""
    await connection.execute(queries("retention")["go_on"], tenant, stage, after_at, after_id)


async def pass_over(connection: asyncpg.Connection, tenant: int) -> None:
    """The tenant's pass is over, until its time of the next day."""
    await connection.execute(queries("retention")["pass_over"], tenant)


async def set_pace(connection: asyncpg.Connection, pause_ms: int) -> None:
    """No batch of any process for so long."""
    await connection.execute(queries("retention")["pace"], pause_ms)


async def old_runs(connection: asyncpg.Connection, turn: Turn, before: datetime, *, limit: int, weight: int) -> Rows:
    """Runs that ended before `before`, oldest first, behind the turn's place: `run`, `ended`, `weight`."""
    after = (turn.after_at or _LONG_AGO, turn.after_id or _FIRST)
    return list(
        await connection.fetch(tenant_query("retention", "old_runs", turn.tenant), before, *after, limit, weight)
    )


async def delete_runs(connection: asyncpg.Connection, tenant: int, runs: Sequence[UUID], before: datetime) -> int:
    """Delete those of the runs that nobody holds, with all that belongs to them. How many went."""
    held = await connection.fetch(tenant_query("retention", "hold_runs", tenant), runs)
    free = await connection.fetch(queries("retention")["hold_keys"], [row["id"] for row in held])
    statement = tenant_query("retention", "delete_runs", tenant)
    return int(await connection.fetchval(statement, [row["run"] for row in free], before))


async def old_events(connection: asyncpg.Connection, turn: Turn, before: datetime, *, limit: int, weight: int) -> Rows:
    """The next events behind the turn's place that may be older than `before`: `id`, `is_old`, `weight`."""
    upper = end_id(round(before.timestamp() * 1_000))
    statement = tenant_query("retention", "old_events", turn.tenant)
    return list(await connection.fetch(statement, turn.after_id or _FIRST, before, upper, limit, weight))


async def delete_events(connection: asyncpg.Connection, tenant: int, events: Sequence[UUID], before: datetime) -> int:
    """Delete those of the events that nobody holds and no active run needs, and forget their ids. How many went."""
    held = await connection.fetch(tenant_query("retention", "hold_events", tenant), events)
    statement = tenant_query("retention", "delete_events", tenant)
    return int(await connection.fetchval(statement, [row["id"] for row in held], before))


async def delete_usage(connection: asyncpg.Connection, tenant: int, before: datetime, limit: int) -> int:
    """Delete usage of days before the one of `before`. How many rows went."""
    return int(await connection.fetchval(tenant_query("retention", "delete_usage", tenant), before.date(), limit))


async def delete_jobs(connection: asyncpg.Connection, tenant: int, before: datetime, limit: int) -> int:
    """Delete bulk jobs that ended before `before`. How many went."""
    return int(await connection.fetchval(queries("retention")["delete_jobs"], tenant, before, limit))
