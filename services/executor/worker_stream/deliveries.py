"""Results that were delivered to a run while its worker executes: read when a commit says that there are some (C5)."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from services.core.domain.envelope import completed_json, error_json, failed_json
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from services.executor.lease import Lease

_LAST = 100
_NO_ERROR = error_json("Error", "the step failed")


class Deliveries:
    """Reads what has come for the open steps of held runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, lease: Lease) -> dict[str, str]:
        """Open steps that have got their result, as JSON by id; they are in the lease's memory now. Raises Unavailable.

        A backoff that is over is open no more: its step is executed again at the next invocation.
        """
        async with self._database.connection() as connection:
            still = {row["sid"] for row in await connection.fetch(queries("executor")["open_steps"], [lease.run])}
            gone = [step_id for step_id in lease.open_steps if step_id not in still]
            if not gone:
                return {}
            query = tenant_query("executor", "delivered", lease.tenant)
            rows = await connection.fetch(query, lease.run, gone)
        for step_id in gone:
            del lease.open_steps[step_id]
        return {row["sid"]: _taken_over(lease, row) for row in rows}

    async def stored(self, lease: Lease, steps: Sequence[str]) -> dict[str, str]:
        """The results of those of these steps that have one, as JSON by id. Raises Unavailable."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(tenant_query("executor", "delivered", lease.tenant), lease.run, steps)
        return {row["sid"]: _result(row) for row in rows}

    async def last(self, lease: Lease) -> dict[str, str]:
        """What the waits of the run came to last, which a worker that comes from elsewhere may wait for. Raises
        Unavailable.
        """
        if not lease.steps:
            return {}
        async with self._database.connection() as connection:
            rows = await connection.fetch(tenant_query("executor", "delivered_last", lease.tenant), lease.run, _LAST)
        return {row["sid"]: _result(row) for row in rows}


def _result(row: asyncpg.Record) -> str:
    if row["status"] == "c":
        return completed_json(row["output"] or "null")
    return failed_json(row["error"] or _NO_ERROR)


def _taken_over(lease: Lease, row: asyncpg.Record) -> str:
    if row["status"] == "c":
        output = row["output"] or "null"
        lease.memo.completed(row["sid"], output)
        return completed_json(output)
    error = row["error"] or _NO_ERROR
    lease.memo.failed(row["sid"], error)
    return failed_json(error)
