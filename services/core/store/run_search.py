"""Which runs a list shows next: the index that fits the filter best, and what else a run must be (engine section 3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from services.core.domain.errors import NotFound
from services.core.domain.run import Status
from services.core.domain.run_record import RunFilter
from services.core.runtime.ids import ulid_uuid
from services.core.store.id_range import end_id, first_id
from services.core.store.queries import tenant_query
from services.core.store.windows import MAX_WINDOW, walk

_KEY_TYPES = "snbj"


@dataclass(frozen=True, slots=True)
class _Search:
    """A source of ids (a statement and its own arguments), and what it leaves to compare."""

    source: str
    arguments: tuple[Any, ...]
    workflows: list[int] | None
    statuses: list[str] | None
    max_window: int = MAX_WINDOW


async def find_runs(
    connection: asyncpg.Connection, tenant: int, wanted: RunFilter, *, after: UUID | None, limit: int
) -> tuple[list[UUID], UUID | None]:
    """At most `limit` ids behind `after`, newest first, and the id to go on behind (None: there are no more).

    Call it within a snapshot. Raises NotFound for a project that the tenant does not have.
    """
    search = await _search(connection, tenant, wanted)
    lower, upper = first_id(wanted.since_ms), end_id(wanted.until_ms)
    tags = json.dumps(wanted.tags) if wanted.tags else None
    times = wanted.since_ms, wanted.until_ms
    ids = tenant_query("run_search", search.source, tenant)
    matching = tenant_query("run_search", "matching", tenant)

    async def source(below: UUID, window: int) -> list[UUID]:
        return _uuids(await connection.fetch(ids, lower, below, window, *search.arguments))

    async def sieve(seen: Sequence[UUID], count: int) -> list[UUID]:
        filters = (search.workflows, search.statuses, *times, tags)
        return _uuids(await connection.fetch(matching, tenant, seen, *filters, count))

    below = upper if after is None else min(upper, after)
    return await walk(source, sieve, below=below, limit=limit, max_window=search.max_window)


async def _search(connection: asyncpg.Connection, tenant: int, wanted: RunFilter) -> _Search:
    workflows = await _workflows(connection, tenant, wanted)
    statuses = [status for status in Status if status.shown in wanted.states]
    values = [status.value for status in statuses] if wanted.states else None
    if wanted.ids:
        return _Search("given", (tenant, wanted.ids), workflows, values)
    if wanted.query is not None:
        within = workflows if workflows is not None else await _ids(connection, tenant, None, None)
        return _Search("newest_named", (tenant, *_named(wanted.query, within)), workflows, values)
    if wanted.states and Status.COMPLETED not in statuses:
        # Runs that are active or ended badly are few among all.
        active = [status.value for status in statuses if not status.is_terminal]
        ended = [status.value for status in statuses if status.is_terminal]
        return _Search("newest_in_states", (tenant, active, ended), workflows, None)
    if workflows is not None:
        share = MAX_WINDOW // max(1, len(workflows))
        return _Search("newest_of_workflows", (workflows,), None, values, max_window=share)
    return _Search("newest", (tenant,), None, values)


async def _workflows(connection: asyncpg.Connection, tenant: int, wanted: RunFilter) -> list[int] | None:
    """The workflows that the filter names by project and name; None for all."""
    if wanted.project is None and wanted.workflow is None:
        return None
    project = None
    if wanted.project is not None:
        statement = tenant_query("run_search", "project", tenant)
        project = await connection.fetchval(statement, tenant, wanted.project)
        if project is None:
            raise NotFound(f"there is no project {wanted.project[:100]!r}")
    return await _ids(connection, tenant, project, wanted.workflow)


async def _ids(connection: asyncpg.Connection, tenant: int, project: int | None, name: str | None) -> list[int]:
    rows = await connection.fetch(tenant_query("run_search", "workflows", tenant), tenant, project, name)
    return [row["id"] for row in rows]


def _named(query: str, workflows: list[int]) -> tuple[UUID | None, list[int], list[str], str]:
    try:
        id = ulid_uuid(query)
    except ValueError:
        id = None
    # A key is stored with the type that it has in an expression (engine section 7); a person does not type that.
    return id, workflows, [f"{type_}:{query}" for type_ in _KEY_TYPES], query


def _uuids(rows: Sequence[asyncpg.Record]) -> list[UUID]:
    return [UUID(int=row["id"].int) for row in rows]
