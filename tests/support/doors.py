"""The doors of the store called as they are, each for several runs or waits."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg

from services.core.store.batch import columns
from services.core.store.commit_item import WaitRow
from services.core.store.queries import queries
from tests.support.live_rows import DAY_MS, LiveRows

ALL_PARTS = list(range(64))


async def finish(rows: LiveRows, *runs: UUID, status: str = "cancelled") -> list[asyncpg.Record]:
    none = [None] * len(runs)
    async with rows.database.connection() as connection:
        return list(await connection.fetch(queries("engine")["finish"], list(runs), [status] * len(runs), none, none))


DELIVER = "select * from rt.deliver_v1($1, $2, $3, $4, $5)"


def delivery(*waits: UUID, event: UUID | None = None) -> tuple[list[Any], ...]:
    """The arguments of `DELIVER`: this event to these waits."""
    count = len(waits)
    return list(waits), ["c"] * count, ['"got"'] * count, [None] * count, [event or uuid4()] * count


async def deliver(rows: LiveRows, *waits: UUID, event: UUID | None = None) -> list[asyncpg.Record]:
    return await rows.rows(DELIVER, *delivery(*waits, event=event))


async def fire(rows: LiveRows) -> None:
    await rows.rows("select * from rt.fire_v1($1, 500)", ALL_PARTS)


async def open_waits(rows: LiveRows, *waits: WaitRow) -> None:
    async with rows.database.connection() as connection:
        await connection.execute(queries("engine")["open_waits"], *columns(waits, len(WaitRow._fields)))


async def waiting(rows: LiveRows, **wait: Any) -> tuple[UUID, UUID]:
    """A run that waits for an event, and its wait."""
    row = rows.wait("e", **{"delay_ms": DAY_MS, **wait})
    return await rows.rest("w", [row]), row.id


async def st(rows: LiveRows, run: UUID) -> str:
    row = await rows.live(run)
    assert row is not None
    return str(row["st"])
