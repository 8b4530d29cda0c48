"""Jobs over many runs as rows: asked for, taken in turns, moved on with each batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from services.core.domain.bulk_job import MAX_FAULTS, BulkFault, BulkJob, filter_from_json, filter_json
from services.core.domain.op import OpError
from services.core.domain.run_record import RunFilter
from services.core.store.queries import queries, tenant_query


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be stored. `wanted` is what it looks for, `print` what tells it from others that were asked for."""

    id: UUID
    tenant: int
    project: int
    action: str
    wanted: RunFilter
    print: str
    total: int
    partial: bool
    trace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenJob:
    """A job whose turn it is. `cursor` is the last run that was looked at."""

    id: UUID
    tenant: int
    action: str
    wanted: RunFilter
    cursor: UUID | None
    trace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a batch comes to. `over`: there are no more runs."""

    cursor: UUID | None
    succeeded: int
    skipped: int
    faults: Sequence[BulkFault]
    over: bool


async def insert_job(connection: asyncpg.Connection, job: NewJob, *, most: int) -> bool:
    """Store it, unless the same is active already or the tenant has `most` active ones. Whether it was stored."""
    id = await connection.fetchval(
        queries("bulk_jobs")["insert"],
        job.id,
        job.tenant,
        job.project,
        job.action,
        filter_json(job.wanted),
        job.print,
        job.total,
        job.partial,
        job.trace,
        most,
    )
    return id is not None


async def same_active(connection: asyncpg.Connection, job: NewJob) -> UUID | None:
    """The active job that does the same."""
    statement = queries("bulk_jobs")["same_active"]
    return _uuid(await connection.fetchval(statement, job.tenant, job.project, job.action, job.print))


async def get_job(connection: asyncpg.Connection, tenant: int, id: UUID) -> BulkJob | None:
    """One job."""
    row = await connection.fetchrow(tenant_query("bulk_jobs", "one", tenant), tenant, id)
    return None if row is None else _record(row)


async def page_of_jobs(
    connection: asyncpg.Connection, tenant: int, project: int, *, after: UUID | None, limit: int
) -> list[BulkJob]:
    """Jobs of a project, newest first, behind `after`."""
    rows = await connection.fetch(tenant_query("bulk_jobs", "page", tenant), tenant, project, after, limit)
    return [_record(row) for row in rows]


async def stop_job(connection: asyncpg.Connection, tenant: int, id: UUID) -> bool:
    """Stop it; waits for a batch in progress. Whether it was active."""
    return str(await connection.execute(queries("bulk_jobs")["stop"], tenant, id)) != "UPDATE 0"


async def take_job(connection: asyncpg.Connection, turn_ms: int) -> TakenJob | None:
    """The job whose turn it is; nobody else takes it for `turn_ms`, which is an economy and not what keeps it right."""
    row = await connection.fetchrow(queries("bulk_jobs")["take"], turn_ms)
    if row is None:
        return None
    return TakenJob(
        id=UUID(int=row["id"].int),
        tenant=row["tenant"],
        action=row["action"],
        wanted=filter_from_json(row["filter"]),
        cursor=_uuid(row["cursor"]),
        trace=row["trace"],
    )


async def hold_job(connection: asyncpg.Connection, job: TakenJob) -> list[BulkFault] | None:
    """Hold the job until the end of the transaction; its faults so far. None: it was stopped, or is somewhere else."""
    text = await connection.fetchval(queries("bulk_jobs")["hold"], job.id, job.cursor)
    return None if text is None else _faults(text)


async def advance_job(
    connection: asyncpg.Connection, job: TakenJob, before: Sequence[BulkFault], progress: Progress
) -> None:
    """Move a held job on. `before`: its faults so far."""
    kept = [*before, *progress.faults][:MAX_FAULTS]
    faults = [{"run": str(each.run), "name": each.error.name, "message": each.error.message} for each in kept]
    await connection.execute(
        queries("bulk_jobs")["advance"],
        job.id,
        progress.cursor,
        progress.succeeded,
        progress.skipped,
        len(progress.faults),
        json.dumps(faults),
        progress.over,
    )


async def give_up_job(connection: asyncpg.Connection, job: TakenJob, error: OpError) -> None:
    """End a job that cannot go on."""
    text = json.dumps({"name": error.name, "message": error.message})
    await connection.execute(queries("bulk_jobs")["give_up"], job.id, text)


def _record(row: asyncpg.Record) -> BulkJob:
    return BulkJob(
        id=UUID(int=row["id"].int),
        project=row["project"],
        action=row["action"],
        state=row["state"],
        total=row["total"],
        partial=row["partial"],
        succeeded=row["succeeded"],
        skipped=row["skipped"],
        failed=row["failed"],
        faults=tuple(_faults(row["faults"])),
        error=None if row["error"] is None else OpError(**json.loads(row["error"])),
        created_ms=row["created_ms"],
        ended_ms=row["ended_ms"],
    )


def _faults(text: str) -> list[BulkFault]:
    return [BulkFault(UUID(each["run"]), OpError(each["name"], each["message"])) for each in json.loads(text)]


def _uuid(value: UUID | None) -> UUID | None:
    return None if value is None else UUID(int=value.int)
