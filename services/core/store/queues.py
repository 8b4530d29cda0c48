"""Which projects have a queue stream, over all tenants, at a cost that does not grow with their projects."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import asyncpg

from services.core.store.queries import queries, tenant_query


@dataclass(frozen=True, slots=True)
class TenantVersion:
    """A tenant that is not disabled, and the version of its definitions: it moves with every change of a project."""

    id: int
    slug: str
    version: int


@dataclass(frozen=True, slots=True)
class QueueProject:
    """A project that serves workflows and has a queue stream. The slugs are for people and for addresses."""

    tenant: int
    tenant_slug: str
    id: int
    slug: str
    queue_stream: str


async def tenant_versions(connection: asyncpg.Connection) -> list[TenantVersion]:
    """All tenants that may be worked for."""
    return [TenantVersion(**row) for row in await connection.fetch(queries("queues")["tenants"])]


async def queue_projects(connection: asyncpg.Connection, tenant: TenantVersion) -> list[QueueProject]:
    """The tenant's projects with a queue stream."""
    rows = await connection.fetch(tenant_query("queues", "streams", tenant.id), tenant.id)
    return [QueueProject(tenant.id, tenant.slug, row["id"], row["slug"], row["queue_stream"]) for row in rows]


async def existing_projects(connection: asyncpg.Connection, tenant: int, projects: Collection[int]) -> set[int]:
    """Those of the projects that are there."""
    rows = await connection.fetch(tenant_query("queues", "existing", tenant), tenant, list(projects))
    return {row["id"] for row in rows}
