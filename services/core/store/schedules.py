"""Cron triggers as rows: the next instant of each, and the ticks that have fired (engine section 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import asyncpg

from services.core.store.queries import queries, tenant_query


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A cron trigger. `id` is None for one that is not stored yet; `place` is its index in the definition.

    Instants are in UTC. `next_at` None: it does not fire. `is_active` False: switched off by hand.
    """

    id: int | None
    tenant: int
    wf: int
    place: int
    cron: str
    timezone: str
    catch_up: str
    is_active: bool = True
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_run: UUID | None = None


class FireRow(NamedTuple):
    """A tick that fires, and the run it starts."""

    trigger: int
    at: datetime
    run: UUID


class AdvanceRow(NamedTuple):
    """Where a trigger stands after its ticks: `last_at` and `last_run` None leave what is there."""

    id: int
    next_at: datetime | None
    last_at: datetime | None
    last_run: UUID | None


async def database_now(connection: asyncpg.Connection) -> datetime:
    """The engine's clock, now."""
    now: datetime = await connection.fetchval(queries("schedules")["now"])
    return now


async def is_any_due(connection: asyncpg.Connection) -> bool:
    """Whether some trigger is due, of whatever tenant."""
    return bool(await connection.fetchval(queries("schedules")["is_due"]))


async def due_ids(connection: asyncpg.Connection, limit: int) -> list[int]:
    """Ids of triggers that are due, whether another transaction holds them or not."""
    return [row["id"] for row in await connection.fetch(queries("schedules")["due_ids"], limit)]


async def take_due(connection: asyncpg.Connection, limit: int, ids: Sequence[int] | None = None) -> list[ScheduleRow]:
    """Triggers that are due, held until the end of the transaction; `ids`: only of these. Held ones are left out."""
    return [_row(row) for row in await connection.fetch(queries("schedules")["take_due"], limit, ids)]


async def advance(connection: asyncpg.Connection, rows: Sequence[AdvanceRow]) -> None:
    """Move held triggers on."""
    await connection.execute(queries("schedules")["advance"], *map(list, zip(*rows, strict=True)))


async def note_fired(connection: asyncpg.Connection, fire: FireRow) -> None:
    """Remember a run that is started by hand as the trigger's last; waits for ticks in progress."""
    await connection.execute(queries("schedules")["note_fired"], *fire)


async def record_fires(connection: asyncpg.Connection, fires: Sequence[FireRow]) -> set[UUID]:
    """Record ticks; the runs of those that had not fired before. Waits for another's ticks of the same instants."""
    rows = await connection.fetch(queries("schedules")["record_fires"], *map(list, zip(*fires, strict=True)))
    return {UUID(int=row["run"].int) for row in rows}


async def redirect_fires(connection: asyncpg.Connection, fires: Sequence[FireRow]) -> None:
    """Set the runs that recorded ticks really led to."""
    await connection.execute(queries("schedules")["redirect_fires"], *map(list, zip(*fires, strict=True)))


async def fired_runs(
    connection: asyncpg.Connection, schedule: int, instants: Sequence[datetime]
) -> Mapping[datetime, UUID]:
    """Those of the instants that have fired, with their runs."""
    rows = await connection.fetch(queries("schedules")["fired"], schedule, instants)
    return {row["at"]: UUID(int=row["run"].int) for row in rows}


async def forget_fires(connection: asyncpg.Connection, before: datetime, limit: int) -> int:
    """Forget some ticks that fired before an instant. How many were forgotten."""
    status: str = await connection.execute(queries("schedules")["forget_fires"], before, limit)
    return int(status.rpartition(" ")[2])


async def lock_schedules(connection: asyncpg.Connection, workflows: Sequence[int]) -> list[ScheduleRow]:
    """The triggers of some workflows, held until the end of the transaction; waits for ticks in progress."""
    return [_row(row) for row in await connection.fetch(queries("schedules")["lock_of_workflows"], workflows)]


async def replace_schedules(
    connection: asyncpg.Connection, tenant: int, workflows: Sequence[int], rows: Sequence[ScheduleRow]
) -> None:
    """Make these all the triggers of the workflows. A row with an id keeps it."""
    await connection.execute(queries("schedules")["delete_of_workflows"], workflows)
    if rows:
        await connection.execute(
            queries("schedules")["insert"],
            tenant,
            [row.id for row in rows],
            [row.wf for row in rows],
            [row.place for row in rows],
            [row.cron for row in rows],
            [row.timezone for row in rows],
            [row.catch_up for row in rows],
            [row.is_active for row in rows],
            [row.next_at for row in rows],
            [row.last_at for row in rows],
            [row.last_run for row in rows],
        )


async def set_schedule_active(
    connection: asyncpg.Connection, schedule: int, is_active: bool, next_at: datetime | None
) -> None:
    """Switch a trigger off, or on again with its next instant."""
    await connection.execute(queries("schedules")["set_active"], schedule, is_active, next_at)


async def get_schedule(connection: asyncpg.Connection, tenant: int, workflow: int, place: int) -> ScheduleRow | None:
    """One trigger by its index."""
    row = await connection.fetchrow(queries("schedules")["one"], tenant, workflow, place)
    return None if row is None else _row(row)


async def page_of_schedules(
    connection: asyncpg.Connection, tenant: int, project: int, *, after: tuple[str, int] | None, limit: int
) -> list[tuple[str, ScheduleRow]]:
    """Triggers of a project with the names of their workflows, by name and index, behind `after`."""
    name, place = after or (None, None)
    rows = await connection.fetch(tenant_query("schedules", "page", tenant), project, name, place, limit)
    return [(row["workflow"], _row(row)) for row in rows]


def _row(row: asyncpg.Record) -> ScheduleRow:
    return ScheduleRow(
        id=row["id"],
        tenant=row["tenant"],
        wf=row["wf"],
        place=row["place"],
        cron=row["cron"],
        timezone=row["timezone"],
        catch_up=row["catch_up"],
        is_active=row["is_active"],
        next_at=row["next_at"],
        last_at=row["last_at"],
        last_run=None if row["last_run"] is None else UUID(int=row["last_run"].int),
    )
