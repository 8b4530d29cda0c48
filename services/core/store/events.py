"""Reading events of a tenant: lists, and one with what it did (engine sections 3 and 6). Nothing here accepts one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from services.core.domain.errors import NotFound
from services.core.domain.event_record import EventEffects, EventFilter, EventPage, EventRecord, SkippedStart
from services.core.runtime.ids import ulid_text, ulid_uuid
from services.core.store.database import Database
from services.core.store.id_range import end_id, first_id
from services.core.store.queries import tenant_query
from services.core.store.run_rows import plain_uuid
from services.core.store.snapshot import READ_TIMEOUT_S, snapshot
from services.core.store.windows import MAX_WINDOW, walk

_MANY_NAMES = 100
# Greater than every character of an event's name.
_AFTER_NAMES = "\x7f"


class EventReader:
    """Reads events. Every method names the tenant, and no other tenant's event is found."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def one(self, tenant: int, event: UUID) -> EventRecord:
        """An event with its data. Raises NotFound, Unavailable."""
        statement = tenant_query("events", "events", tenant)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statement, tenant, [event], True, timeout=READ_TIMEOUT_S)
        if row is None:
            raise NotFound(f"there is no event {ulid_text(event)}")
        return _record(row)

    async def list(self, tenant: int, wanted: EventFilter, *, after: UUID | None, limit: int) -> EventPage:
        """The events behind `after` that `wanted` describes, newest first, without data.

        Raises NotFound (project), Unavailable.
        """
        async with snapshot(self._database) as connection:
            ids, following = await _find(connection, tenant, wanted, after, limit)
            rows = await connection.fetch(tenant_query("events", "events", tenant), tenant, ids, False)
        return EventPage(tuple(_record(row) for row in rows), following)


async def _find(
    connection: asyncpg.Connection, tenant: int, wanted: EventFilter, after: UUID | None, limit: int
) -> tuple[list[UUID], UUID | None]:
    project = None if wanted.project is None else await _project(connection, tenant, wanted.project)
    names = await _names(connection, tenant, wanted.name_prefix)
    ids = tenant_query("events", "newest" if names is None else "newest_of_names", tenant)
    matching = tenant_query("events", "matching", tenant)
    lower, upper = first_id(wanted.since_ms), end_id(wanted.until_ms)

    async def source(below: UUID, window: int) -> list[UUID]:
        return _uuids(await connection.fetch(ids, lower, below, window, tenant if names is None else names))

    async def sieve(seen: Sequence[UUID], count: int) -> list[UUID]:
        filters = (wanted.name_prefix, wanted.source, project, wanted.since_ms, wanted.until_ms)
        return _uuids(await connection.fetch(matching, tenant, seen, *filters, count))

    share = MAX_WINDOW if names is None else MAX_WINDOW // max(1, len(names))
    below = upper if after is None else min(upper, after)
    return await walk(source, sieve, below=below, limit=limit, max_window=share)


async def _names(connection: asyncpg.Connection, tenant: int, prefix: str | None) -> list[str] | None:
    """The names that begin so; None where they are many, and all events must be looked through."""
    if not prefix:
        return None
    statement = tenant_query("events", "names", tenant)
    rows = await connection.fetch(statement, prefix, prefix + _AFTER_NAMES, _MANY_NAMES + 1)
    return [row["name"] for row in rows] if len(rows) <= _MANY_NAMES else None


async def _project(connection: asyncpg.Connection, tenant: int, slug: str) -> int:
    found = await connection.fetchval(tenant_query("events", "project", tenant), tenant, slug)
    if found is None:
        raise NotFound(f"there is no project {slug[:100]!r}")
    return int(found)


def _record(row: Mapping[str, Any]) -> EventRecord:
    return EventRecord(
        id=UUID(int=row["id"].int),
        name=row["name"],
        data=row["data"],
        ts=row["ts"],
        event_id=row["event_id"],
        source=row["source"],
        project=row["project"],
        run=plain_uuid(row["run"]),
        test=row["test"],
        received_ms=row["received_ms"],
        effects=_effects(row["effects"]),
        trace=row["trace"],
    )


def _effects(text: str) -> EventEffects:
    found = json.loads(text)
    return EventEffects(
        runs=_ids(found["runs"]),
        resumed=found["resumed"],
        cancelled=found["cancelled"],
        resumed_runs=_ids(found.get("resumed_runs", ())),
        cancelled_runs=_ids(found.get("cancelled_runs", ())),
        skipped=tuple(SkippedStart(**entry) for entry in found.get("skipped", ())),
    )


def _ids(texts: Iterable[str]) -> tuple[UUID, ...]:
    """Of ids as ULIDs, or as the database writes them."""
    return tuple(UUID(text) if "-" in text else ulid_uuid(text) for text in texts)


def _uuids(rows: Sequence[asyncpg.Record]) -> list[UUID]:
    return [UUID(int=row["id"].int) for row in rows]
