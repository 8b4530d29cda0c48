"""Results that were delivered to a run while its worker executes: read when a commit says that there are some (C5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from services.core.domain.envelope import completed_json, error_json, failed_json
from services.core.domain.errors import Unavailable
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from services.executor.lease import Lease

_LAST = 100
_AGAIN_S = 0.5
_NO_ERROR = error_json("Error", "the step failed")


class Deliveries:
    """Reads what has come for the open steps of held runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, lease: Lease) -> dict[str, str]:
        """Open steps that have got their result, as JSON by id; they are in the lease's memory now.

        A backoff that is over is open no more: its step is executed again at the next invocation.
        """
        return await _patiently(lambda: self._read(lease))

    async def _read(self, lease: Lease) -> dict[str, str]:
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
        """The results of those of these steps that have one, as JSON by id."""
        return await self._results(lease, "delivered", steps)

    async def last(self, lease: Lease) -> dict[str, str]:
        """What the waits of the run came to last, which a worker that comes from elsewhere may wait for."""
        return await self._results(lease, "delivered_last", _LAST) if lease.steps else {}

    async def _results(self, lease: Lease, query: str, which: Sequence[str] | int) -> dict[str, str]:
        async def fetch() -> dict[str, str]:
            async with self._database.connection() as connection:
                rows = await connection.fetch(tenant_query("executor", query, lease.tenant), lease.run, which)
            return {row["sid"]: _result(row) for row in rows}

        return await _patiently(fetch)


async def _patiently(read: Callable[[], Awaitable[dict[str, str]]]) -> dict[str, str]:
    """Read until the database answers: what a worker has in hand is not given up because it is away for a moment."""
    while True:
        try:
            return await read()
        except Unavailable:
            await asyncio.sleep(_AGAIN_S)


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
