"""Projects as rows of their tenant (engine section 3). Signing keys are sealed here and stay so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from services.core.domain.errors import Conflict, NotFound
from services.core.store.queries import queries, tenant_query


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRow:
    """A project; times are unix milliseconds, `now_ms` is the database's clock when the row was read."""

    tenant: int
    id: int
    slug: str
    name: str
    trigger_type: str
    queue_stream: str | None
    endpoint_url: str | None
    signing_key: bytes | None
    previous_key: bytes | None
    key_print: str | None
    defs_file: str | None
    defs_hash: str | None
    defs_source: str | None
    sync_status: str | None
    rotated_ms: int | None
    synced_ms: int | None
    created_ms: int
    now_ms: int


async def next_project_id(connection: asyncpg.Connection) -> int:
    """An id for a new project; one that is not used is lost, which does no harm."""
    return int(await connection.fetchval(queries("projects")["next_id"]))


async def insert_project(
    connection: asyncpg.Connection,
    tenant: int,
    *,
    id: int,
    slug: str,
    name: str,
    trigger_type: str,
    queue_stream: str | None,
    signing_key: bytes | None,
    key_print: str | None,
) -> None:
    """Store a new project. Raises Conflict when the slug is taken."""
    statement = queries("projects")["insert"]
    values = (tenant, id, slug, name, trigger_type, queue_stream, signing_key, key_print)
    if await connection.fetchval(statement, *values) is None:
        raise Conflict(f"there is a project {slug} already", reason="ALREADY_EXISTS")


async def get_project(connection: asyncpg.Connection, tenant: int, slug: str) -> ProjectRow:
    """One project. Raises NotFound."""
    return await _one(connection, tenant, "by_slug", slug)


async def lock_project(
    connection: asyncpg.Connection, tenant: int, slug: str, *, even_deleted: bool = False
) -> ProjectRow:
    """One project, held against other changes until the end of the transaction.

    Raises NotFound, and Conflict for one whose deletion was asked for, unless `even_deleted`.
    """
    project = await _one(connection, tenant, "lock_by_slug", slug)
    if not even_deleted and await connection.fetchval(queries("projects")["is_deleted"], project.id):
        raise project_deleted(f"project {slug} is being deleted")
    return project


def project_deleted(message: str) -> Conflict:
    """The error for what may not happen any more in a project whose deletion was asked for."""
    return Conflict(message, reason="PROJECT_DELETED")


async def list_projects(
    connection: asyncpg.Connection, tenant: int, *, after: str | None, limit: int
) -> list[ProjectRow]:
    """Projects by slug, behind `after`."""
    rows = await connection.fetch(tenant_query("projects", "list", tenant), after, limit)
    return [ProjectRow(tenant=tenant, **row) for row in rows]


async def has_projects(connection: asyncpg.Connection, tenant: int) -> bool:
    """Whether the tenant has any."""
    return bool(await connection.fetchval(tenant_query("projects", "exists_any", tenant)))


async def update_config(
    connection: asyncpg.Connection, tenant: int, project: int, *, name: str, trigger_type: str, queue_stream: str | None
) -> None:
    """Set name and configuration."""
    statement = tenant_query("projects", "update_config", tenant)
    await connection.execute(statement, project, name, trigger_type, queue_stream)


async def set_key(
    connection: asyncpg.Connection, tenant: int, project: int, sealed: bytes, print_: str, *, rotate: bool
) -> None:
    """Set the sealed signing key and its fingerprint; with `rotate` the one before signs along from now on."""
    statement = tenant_query("projects", "rotate_key" if rotate else "set_key", tenant)
    await connection.execute(statement, project, sealed, print_)


async def set_endpoint(connection: asyncpg.Connection, tenant: int, project: int, url: str | None) -> None:
    """Set the endpoint override, None removes it."""
    await connection.execute(tenant_query("projects", "set_endpoint", tenant), project, url)
    await connection.execute(queries("projects")["set_pool"], tenant, project)


async def set_definitions_file(connection: asyncpg.Connection, tenant: int, project: int, text: str) -> None:
    """Store the list that a sync falls back to."""
    await connection.execute(tenant_query("projects", "set_file", tenant), project, text)


async def set_declared(connection: asyncpg.Connection, tenant: int, project: int, *, version: str, source: str) -> None:
    """Remember who declared the list last, and its hash."""
    await connection.execute(tenant_query("projects", "set_declared", tenant), project, version, source)
    await connection.execute(queries("projects")["set_pool"], tenant, project)


async def set_synced(connection: asyncpg.Connection, tenant: int, project: int, status: str) -> None:
    """Remember how the last sync went, as JSON."""
    await connection.execute(tenant_query("projects", "set_synced", tenant), project, status)


async def key_marks(connection: asyncpg.Connection, size: int) -> list[bytes]:
    """The first bytes of all sealed signing keys, of all tenants, each once."""
    return [row[0] for row in await connection.fetch(queries("projects")["key_marks"], size)]


async def sealed_keys(connection: asyncpg.Connection) -> list[asyncpg.Record]:
    """The sealed keys of all projects of all tenants, held until the end of the transaction: `tenant`, `id`, `slug`,
    `signing_key`, `previous_key`.
    """
    return list(await connection.fetch(queries("projects")["sealed_keys"]))


async def put_resealed(
    connection: asyncpg.Connection, tenant: int, project: int, signing_key: bytes | None, previous_key: bytes | None
) -> None:
    """The same keys, sealed with another key."""
    await connection.execute(tenant_query("projects", "reseal", tenant), project, signing_key, previous_key)


async def workflow_ids(connection: asyncpg.Connection, tenant: int, project: int) -> list[int]:
    """Ids of all workflows of a project."""
    rows = await connection.fetch(tenant_query("projects", "workflow_ids", tenant), project)
    return [row["id"] for row in rows]


async def active_runs(
    connection: asyncpg.Connection, tenant: int, workflows: Sequence[int], *, limit: int
) -> list[UUID]:
    """Some active runs of these workflows."""
    rows = await connection.fetch(queries("projects")["active_runs"], tenant, workflows, limit)
    return [UUID(int=row["id"].int) for row in rows]


async def lock_active_runs(connection: asyncpg.Connection, tenant: int, runs: Sequence[UUID]) -> list[UUID]:
    """Those of the runs that are active still, held in the order of their ids (rulings C11)."""
    rows = await connection.fetch(queries("projects")["lock_active_runs"], tenant, runs)
    return [UUID(int=row["id"].int) for row in rows]


async def begin_delete(connection: asyncpg.Connection, tenant: int, project: int) -> None:
    """From the commit on nothing of the project starts or goes on again, for good."""
    await connection.execute(queries("projects")["begin_delete"], project, tenant)


async def run_is_deleted(connection: asyncpg.Connection, tenant: int, run: UUID) -> bool:
    """Whether the deletion of the run's project was asked for."""
    return bool(await connection.fetchval(tenant_query("projects", "run_is_deleted", tenant), run))


async def writers(connection: asyncpg.Connection) -> set[str]:
    """The transactions that may have started or re-opened runs."""
    return {row["virtualtransaction"] for row in await connection.fetch(queries("projects")["writers"])}


async def delete_some_runs(connection: asyncpg.Connection, tenant: int, workflows: Sequence[int], *, limit: int) -> int:
    """Delete ended runs of these workflows with all that belongs to them. How many went."""
    rows = await connection.fetch(tenant_query("projects", "some_runs", tenant), workflows, limit)
    if not rows:
        return 0
    held = await connection.fetch(tenant_query("projects", "hold_runs", tenant), [row["id"] for row in rows])
    await connection.execute(tenant_query("projects", "delete_runs", tenant), [row["id"] for row in held])
    return len(held)


async def has_runs(connection: asyncpg.Connection, tenant: int, workflows: Sequence[int]) -> bool:
    """Whether there is a run of these workflows."""
    return bool(await connection.fetchval(tenant_query("projects", "has_runs", tenant), workflows))


async def delete_project(connection: asyncpg.Connection, tenant: int, project: int) -> None:
    """Delete the row of a project and those of its workflows."""
    await connection.execute(tenant_query("projects", "delete_workflows", tenant), project)
    await connection.execute(tenant_query("projects", "delete", tenant), project)


async def _one(connection: asyncpg.Connection, tenant: int, name: str, slug: str) -> ProjectRow:
    row = await connection.fetchrow(tenant_query("projects", name, tenant), slug)
    if row is None:
        raise NotFound(f"there is no project {slug[:100]}")
    return ProjectRow(tenant=tenant, **row)
