"""Which runs a list shows next: the best index for a filter, walked in windows from the newest id (engine section 3).

Ids are time-ordered, so the order is stable and a page goes on behind the last id, whatever has happened since. A
filter that hits few of many runs stops after some windows; the caller goes on behind the last id that was looked at.
"""

from __future__ import annotations

import json
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

_ROUNDS = 10
_GROWTH = 4
_MAX_WINDOW = 5_000


@dataclass(frozen=True, slots=True)
class _Search:
    """A source of ids (a statement and its own arguments) and what else a run must be."""

    source: str
    arguments: tuple[Any, ...]
    workflows: list[int] | None
    statuses: list[str] | None
    max_window: int = _MAX_WINDOW


async def find_runs(
    connection: asyncpg.Connection, tenant: int, wanted: RunFilter, *, after: UUID | None, limit: int
) -> tuple[list[UUID], UUID | None]:
    """At most `limit` ids behind `after`, newest first, and the id to go on behind (None: there are no more).

    Call it within a snapshot. Raises NotFound for a project that the tenant does not have.
    """
    search = await _search(connection, tenant, wanted)
    lower, upper = first_id(wanted.since_ms), end_id(wanted.until_ms)
    if after is not None:
        upper = min(upper, after)
    tags = json.dumps(wanted.tags) if wanted.tags else None
    source = tenant_query("run_search", search.source, tenant)
    matching = tenant_query("run_search", "matching", tenant)
    found: list[UUID] = []
    window = limit + 1
    for _ in range(_ROUNDS):
        seen = [row["id"] for row in await connection.fetch(source, lower, upper, window, *search.arguments)]
        rows = await connection.fetch(
            matching,
            tenant,
            seen,
            search.workflows,
            search.statuses,
            wanted.since_ms,
            wanted.until_ms,
            tags,
            limit + 1 - len(found),
        )
        found += [UUID(int=row["id"].int) for row in rows]
        if len(found) > limit:
            return found[:limit], found[limit - 1]
        if len(seen) < window:
            return found, None
        upper = UUID(int=seen[-1].int)
        window = max(window, min(window * _GROWTH, search.max_window))
    return found, upper


async def _search(connection: asyncpg.Connection, tenant: int, wanted: RunFilter) -> _Search:
    workflows = await _workflows(connection, tenant, wanted)
    statuses = [status.value for status in Status if status.shown in wanted.states] if wanted.states else None
    if wanted.query is not None:
        within = workflows if workflows is not None else await _ids(connection, tenant, None, None)
        return _Search("newest_named", (tenant, *_named(wanted.query, within)), workflows, statuses)
    if statuses is not None and Status.COMPLETED.value not in statuses:
        # Runs that are active or ended badly are few among all.
        ended = [status.value for status in Status if status.is_terminal]
        letters = [value for value in statuses if value not in ended]
        words = [value for value in statuses if value in ended]
        return _Search("newest_in_states", (tenant, letters, words), workflows, None)
    if workflows is not None:
        share = _MAX_WINDOW // max(1, len(workflows))
        return _Search("newest_of_workflows", (workflows,), None, statuses, max_window=share)
    return _Search("newest", (tenant,), None, statuses)


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
    return id, workflows, [f"{type_}:{query}" for type_ in "snbj"], query
