"""Reading what has changed of a run since a moment, however long ago and in whatever process that was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import asyncpg

from services.core.domain.errors import NotFound
from services.core.domain.run_change import Cursor, RunChange
from services.core.domain.run_record import Place, RunRecord
from services.core.runtime.ids import ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from services.core.store.run_rows import Row, run_record, trigger_record
from services.core.store.runs import function_attempts, steps_of
from services.core.store.snapshot import READ_TIMEOUT_S, snapshot

PAGE_BYTES = 2 * 1024 * 1024
"""What the steps of one page may hold; a page has at least one step."""

_START: Place = (-1, "")


class RunChangeReader:
    """Reads changes of runs. No other tenant's run is found."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def since(
        self, tenant: int, run: UUID, cursor: Cursor | None, *, after: Place | None = None, max_bytes: int = PAGE_BYTES
    ) -> RunChange:
        """What has changed since a cursor, or the whole run; at most 1,000 steps behind `after`. All of one moment.

        Raises NotFound, Unavailable. The whole run is told too where the cursor is of another server or of before a
        retry, because steps may have gone since. The cursor of the first page holds for all behind it.
        """
        async with snapshot(self._database) as connection:
            moment = await connection.fetchrow(tenant_query("run_changes", "moment", tenant), tenant, run)
            rows = await connection.fetch(tenant_query("runs", "runs", tenant), tenant, [run], timeout=READ_TIMEOUT_S)
            if moment is None or not rows:
                raise NotFound(f"there is no run {ulid_text(run)}")
            cursor = cursor if _holds(cursor, moment) else None
            record = await _record(connection, tenant, rows[0], failed=moment["may_have_failed"])
            places = await connection.fetch(
                tenant_query("run_changes", "places", tenant),
                *(tenant, run, *(after or _START), max_bytes, 0 if cursor is None else cursor.xid, moment["now"]),
            )
            steps = await steps_of(connection, tenant, record, [row["sid"] for row in places])
        more = bool(places) and places[0]["remaining"] > len(places)
        return RunChange(
            run=record,
            steps=steps,
            whole=cursor is None,
            next=(places[-1]["seq"], places[-1]["sid"]) if more else None,
            cursor=Cursor(moment["server"], moment["known"], moment["retries"], moment["mark"] is None),
            mark=moment["mark"],
        )

    async def marks(self, runs: Sequence[UUID]) -> Mapping[UUID, int]:
        """The mark of each of the runs, of any tenants, that is active. Raises Unavailable."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("run_changes")["marks"], runs, timeout=READ_TIMEOUT_S)
        return {UUID(int=row["id"].int): row["mark"] for row in rows}


def _holds(cursor: Cursor | None, moment: asyncpg.Record) -> bool:
    """Whether nothing can have gone or be missed since the cursor."""
    if cursor is None or cursor.server != moment["server"] or cursor.xid > moment["now"]:
        return False
    return bool(cursor.retries == moment["retries"])


async def _record(connection: asyncpg.Connection, tenant: int, row: Row, *, failed: bool) -> RunRecord:
    """The run with its event, once it has ended its output, and if anything can have failed its function's attempts."""
    record = run_record(row)
    payload = await connection.fetchrow(tenant_query("runs", "payload", tenant), tenant, record.id)
    assert payload is not None, "within the snapshot that has the run"
    return replace(
        record,
        event=trigger_record(row, payload["event_data"]),
        output=payload["output"],
        attempts=await function_attempts(connection, tenant, record.id) if failed else (),
    )
