"""Reading why runs do not go on. Nothing keeps that for readers: it is put together from what is there anyway."""

from __future__ import annotations

import json
from collections.abc import Iterable
from uuid import UUID

import asyncpg

from services.core.domain.op import OpError
from services.core.domain.run import Status
from services.core.domain.run_wait import RunWait, Standing, run_wait
from services.core.store.queries import tenant_query
from services.core.store.run_rows import Row
from services.core.store.snapshot import READ_TIMEOUT_S

_WAITING = frozenset(status.value for status in (Status.QUEUED, Status.BLOCKED, Status.DELAYED, Status.PARKED))
_RUNNING = Status.RUNNING.value


async def run_waits(
    connection: asyncpg.Connection, tenant: int, runs: Iterable[Row], *, running: bool = False
) -> dict[UUID, RunWait]:
    """What those of the runs wait for that do not go on, by id. `runs` are rows of the query `runs`, of this moment.

    `running`: also of those that are executed, for which all their steps are looked at.
    """
    waiting = [row["id"] for row in runs if row["status"] in _WAITING or (running and row["status"] == _RUNNING)]
    if not waiting:
        return {}
    statement = tenant_query("runs", "waiting", tenant)
    rows = await connection.fetch(statement, tenant, waiting, timeout=READ_TIMEOUT_S)
    found = ((UUID(int=row["id"].int), run_wait(_standing(row))) for row in rows)
    return {id: wait for id, wait in found if wait is not None}


def _standing(row: Row) -> Standing:
    error = None if row["error"] is None else json.loads(row["error"])
    return Standing(
        status=Status(row["st"]),
        pooled=row["pooled"],
        ready_ms=row["ready_ms"],
        due_ms=row["due_ms"],
        now_ms=row["now_ms"],
        heard_ms=row["heard_ms"],
        streamed=row["streamed"],
        attempt=row["attempt"],
        error=None if error is None else OpError(error["name"], error["message"]),
        concurrency=row["concurrency"],
        executors=row["executors"],
        workers=row["workers"],
    )
