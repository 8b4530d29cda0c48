"""Reading runs of a tenant: one in full, lists, results (engine section 3). Nothing here changes a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import asyncpg

from services.core.domain.errors import NotFound
from services.core.domain.run_record import (
    AttemptRecord,
    Place,
    RunDetail,
    RunFilter,
    RunPage,
    RunRecord,
    RunResult,
    StepRecord,
)
from services.core.runtime.ids import ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from services.core.store.run_rows import (
    Row,
    attempt_record,
    child_record,
    failed_step,
    open_step,
    run_record,
    run_result,
    stored_step,
    trigger_record,
)
from services.core.store.run_search import find_runs
from services.core.store.run_waits import run_waits
from services.core.store.snapshot import READ_TIMEOUT_S, snapshot

PAGE_BYTES = 8 * 1024 * 1024
"""What the steps of one page may hold; a page has at least one step."""

_FUNCTION_ATTEMPTS = 100
_START: Place = (-1, "")


class RunReader:
    """Reads runs. Every method names the tenant, and no other tenant's run is found."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def detail(
        self, tenant: int, run: UUID, *, steps: int = 1_000, after: Place | None = None, max_bytes: int = PAGE_BYTES
    ) -> RunDetail:
        """A run with at most `steps` of its steps behind `after`, all of one moment. Raises NotFound, Unavailable.

        Steps are in step order; one that failed and runs again next, at a place that is not known yet, is last. Of the
        function's own failed attempts the last 100 are there.
        """
        async with snapshot(self._database) as connection:
            row = await _row(connection, tenant, run)
            payload = await connection.fetchrow(tenant_query("runs", "payload", tenant), tenant, run)
            assert payload is not None, "within the snapshot that has the run"
            record = replace(
                run_record(row),
                event=trigger_record(row, payload["event_data"]),
                output=payload["output"],
                attempts=await function_attempts(connection, tenant, run),
                waiting=(await run_waits(connection, tenant, [row], running=True)).get(run),
            )
            places = await connection.fetch(
                tenant_query("runs", "step_places", tenant), tenant, run, *(after or _START), steps, max_bytes
            )
            found = await steps_of(connection, tenant, record, [row["sid"] for row in places])
            children = await connection.fetch(tenant_query("runs", "children", tenant), tenant, run)
        more = bool(places) and places[0]["remaining"] > len(places)
        return RunDetail(
            run=record,
            steps=found,
            children=tuple(child_record(row) for row in children),
            next=(places[-1]["seq"], places[-1]["sid"]) if more else None,
        )

    async def one(self, tenant: int, run: UUID) -> RunRecord:
        """A run as lists show it. Raises NotFound, Unavailable."""
        async with self._database.connection() as connection:
            return run_record(await _row(connection, tenant, run))

    async def list(self, tenant: int, wanted: RunFilter, *, after: UUID | None, limit: int) -> RunPage:
        """The runs behind `after` that `wanted` describes, newest first. Raises NotFound (project), Unavailable."""
        async with snapshot(self._database) as connection:
            ids, following = await find_runs(connection, tenant, wanted, after=after, limit=limit)
            rows = await connection.fetch(tenant_query("runs", "runs", tenant), tenant, ids) if ids else []
            waits = await run_waits(connection, tenant, rows)
        runs = (run_record(row) for row in rows)
        return RunPage(tuple(replace(run, waiting=waits.get(run.id)) for run in runs), following)

    async def result(self, tenant: int, run: UUID) -> RunResult:
        """Where a run stands, with its result once it has ended. Raises NotFound, Unavailable."""
        async with self._database.connection() as connection:
            statement = tenant_query("runs", "result", tenant)
            row = await connection.fetchrow(statement, tenant, run, timeout=READ_TIMEOUT_S)
        if row is None:
            raise _unknown(run)
        return run_result(run, row)

    async def ended_among(self, runs: Sequence[UUID]) -> set[UUID]:
        """Those of the runs, of any tenants, that are not active. Raises Unavailable."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("runs")["ended_among"], runs, timeout=READ_TIMEOUT_S)
        return {UUID(int=row["id"].int) for row in rows}


async def _row(connection: asyncpg.Connection, tenant: int, run: UUID) -> Row:
    row: Row | None = await connection.fetchrow(
        tenant_query("runs", "runs", tenant), tenant, [run], timeout=READ_TIMEOUT_S
    )
    if row is None:
        raise _unknown(run)
    return row


async def steps_of(
    connection: asyncpg.Connection, tenant: int, run: RunRecord, ids: Sequence[str]
) -> tuple[StepRecord, ...]:
    """The steps with these ids, in their order."""
    if not ids:
        return ()
    failed: dict[str, list[AttemptRecord]] = {id: [] for id in ids}
    for row in await connection.fetch(tenant_query("runs", "step_attempts", tenant), tenant, run.id, ids):
        failed[row["sid"]].append(attempt_record(row))
    steps: dict[str, StepRecord] = {}
    for row in await connection.fetch(tenant_query("runs", "stored_steps", tenant), tenant, run.id, ids):
        steps[row["sid"]] = stored_step(row, failed[row["sid"]])
    for row in await connection.fetch(queries("runs")["open_steps"], tenant, run.id, ids):
        steps[row["sid"]] = open_step(row, failed[row["sid"]], run.event)
    return tuple(steps.get(id) or failed_step(id, failed[id], run) for id in ids)


async def function_attempts(connection: asyncpg.Connection, tenant: int, run: UUID) -> tuple[AttemptRecord, ...]:
    statement = tenant_query("runs", "function_attempts", tenant)
    rows = await connection.fetch(statement, tenant, run, _FUNCTION_ATTEMPTS)
    return tuple(attempt_record(row) for row in reversed(rows))


def _unknown(run: UUID) -> NotFound:
    return NotFound(f"there is no run {ulid_text(run)}")
