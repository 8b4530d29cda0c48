"""A run as run control needs it: what started it, and what it was started of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from services.core.domain.errors import Conflict, NotFound
from services.core.domain.matching import event_value
from services.core.engine.definitions import DefinitionsCache, WorkflowEntry
from services.core.runtime.ids import ulid_text
from services.core.store.queries import tenant_query


@dataclass(frozen=True, slots=True)
class StoredRun:
    """`data` is the trigger event's data as JSON text; `status` None while the run is active."""

    id: UUID
    entry: WorkflowEntry
    event: UUID
    event_name: str
    event_ts: int
    own_data: str | None
    data: str
    test: bool
    tags: str
    status: str | None

    def trigger(self) -> dict[str, Any]:
        """The trigger event as expressions see it."""
        return event_value(id=ulid_text(self.event), name=self.event_name, data=self.data, ts=self.event_ts)


async def stored_run(
    connection: asyncpg.Connection, definitions: DefinitionsCache, tenant: int, run: UUID
) -> StoredRun:
    """The run, held against retention. Raises NotFound; Conflict when its trigger event is no longer kept."""
    found = await stored_runs(connection, definitions, tenant, [run])
    if run not in found:
        raise NotFound("there is no such run")
    stored = found[run]
    if stored is None:
        raise Conflict("the event that started the run is not kept any more", reason="EVENT_PRUNED")
    return stored


async def stored_runs(
    connection: asyncpg.Connection, definitions: DefinitionsCache, tenant: int, runs: Sequence[UUID]
) -> dict[UUID, StoredRun | None]:
    """Those of the runs that there are. None: its trigger event is no longer kept.

    They and their events are held, in the order of their ids, until the end of the caller's transaction: retention does
    not take away what is about to be needed again.
    """
    rows = await connection.fetch(tenant_query("run_control", "stored_runs", tenant), runs)
    elsewhere = [row["event"] for row in rows if row["event_data"] is None]
    events: dict[int, str] = {}
    if elsewhere:
        held = await connection.fetch(tenant_query("run_control", "hold_events", tenant), elsewhere)
        events = {event["id"].int: event["data"] for event in held}
    workflows = (await definitions.get(connection, tenant)).workflows
    found: dict[UUID, StoredRun | None] = {}
    for row in rows:
        own_data = row["event_data"]
        data = events.get(row["event"].int) if own_data is None else own_data
        id = UUID(int=row["id"].int)
        found[id] = None if data is None else _stored_run(id, row, data, workflows[row["wf"]])
    return found


def _stored_run(id: UUID, row: asyncpg.Record, data: str, entry: WorkflowEntry) -> StoredRun:
    return StoredRun(
        id=id,
        entry=entry,
        event=UUID(int=row["event"].int),
        event_name=row["event_name"],
        event_ts=row["event_ts"],
        own_data=row["event_data"],
        data=data,
        test=row["test"],
        tags=row["tags"],
        status=row["status"],
    )
