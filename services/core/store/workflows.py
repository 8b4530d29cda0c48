"""Workflow definitions as rows of their project, and the version of a tenant's definitions (engine section 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from services.core.store.queries import queries, tenant_query


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    """A workflow. `definition` is canonical JSON; times are unix milliseconds, `archived_ms` None while declared."""

    id: int
    name: str
    definition: str
    is_active: bool
    archived_ms: int | None
    created_ms: int
    updated_ms: int


async def definitions_version(connection: asyncpg.Connection, tenant: int) -> int | None:
    """The version of the tenant's definitions; None for a tenant that does not exist."""
    version: int | None = await connection.fetchval(queries("workflows")["version"], tenant)
    return version


async def definitions_versions(connection: asyncpg.Connection, tenants: Sequence[int]) -> dict[int, int]:
    """The same for several tenants in one read."""
    rows = await connection.fetch(queries("workflows")["versions"], tenants)
    return {row["tenant"]: row["v"] for row in rows}


async def bump_definitions(connection: asyncpg.Connection, tenant: int) -> None:
    """Move the version, in the transaction of the change; caches compare it."""
    await connection.execute(queries("workflows")["bump"], tenant)


async def load_projects(connection: asyncpg.Connection, tenant: int, key_grace_ms: int) -> list[asyncpg.Record]:
    """All projects as the cache wants them; `previous_key` only while it signs along, for `previous_left_ms` more."""
    return list(await connection.fetch(tenant_query("workflows", "load_projects", tenant), key_grace_ms))


async def load_workflows(connection: asyncpg.Connection, tenant: int) -> list[asyncpg.Record]:
    """All workflows as the cache wants them, archived ones too."""
    return list(await connection.fetch(tenant_query("workflows", "load_workflows", tenant)))


async def workflows_of(connection: asyncpg.Connection, tenant: int, project: int) -> list[WorkflowRow]:
    """All workflows of a project by name, archived ones too."""
    rows = await connection.fetch(tenant_query("workflows", "of_project", tenant), project)
    return [WorkflowRow(**row) for row in rows]


async def page_of_workflows(
    connection: asyncpg.Connection, tenant: int, project: int, *, after: str | None, archived: bool, limit: int
) -> list[WorkflowRow]:
    """Workflows of a project by name, behind `after`; `archived` adds those that are no longer declared."""
    statement = tenant_query("workflows", "page", tenant)
    return [WorkflowRow(**row) for row in await connection.fetch(statement, project, after, archived, limit)]


async def get_workflow(connection: asyncpg.Connection, tenant: int, project: int, name: str) -> WorkflowRow | None:
    """One workflow of a project."""
    row = await connection.fetchrow(tenant_query("workflows", "by_name", tenant), project, name)
    return None if row is None else WorkflowRow(**row)


async def put_workflows(
    connection: asyncpg.Connection, tenant: int, project: int, definitions: Mapping[str, str]
) -> None:
    """Insert or replace definitions by name, and un-archive them. Whether they are paused stays as it was."""
    await connection.execute(
        queries("workflows")["put"], tenant, project, list(definitions), list(definitions.values())
    )


async def archive_workflows(connection: asyncpg.Connection, tenant: int, workflows: Sequence[int]) -> None:
    """Archive workflows by id."""
    await connection.execute(tenant_query("workflows", "archive", tenant), workflows)


async def archive_all(connection: asyncpg.Connection, tenant: int, project: int) -> None:
    """Archive all workflows of a project."""
    await connection.execute(tenant_query("workflows", "archive_all", tenant), project)


async def count_active(
    connection: asyncpg.Connection, tenant: int, workflows: Sequence[int], *, most: int, timeout_s: float
) -> dict[int, int]:
    """Active runs by workflow, at most so many of all of them together; a workflow without one is left out."""
    statement = queries("workflows")["count_active"]
    rows = await connection.fetch(statement, tenant, workflows, most, timeout=timeout_s)
    return {row["wf"]: row["n"] for row in rows}


async def set_active(connection: asyncpg.Connection, tenant: int, workflow: int, is_active: bool) -> None:
    """Pause a workflow or let it go on."""
    await connection.execute(tenant_query("workflows", "set_active", tenant), workflow, is_active)
