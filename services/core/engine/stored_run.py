"""A run as run control needs it: what started it, and what it was started of."""

from __future__ import annotations

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
    """The run. Raises NotFound; Conflict when its trigger event is no longer kept."""
    row = await connection.fetchrow(tenant_query("engine", "stored_run", tenant), run)
    if row is None:
        raise NotFound("there is no such run")
    if row["data"] is None:
        raise Conflict("the event that started the run is not kept any more", reason="EVENT_PRUNED")
    entry = (await definitions.get(connection, tenant)).workflows[row["wf"]]
    return StoredRun(
        id=run,
        entry=entry,
        event=UUID(int=row["event"].int),
        event_name=row["event_name"],
        event_ts=row["event_ts"],
        own_data=row["event_data"],
        data=row["data"],
        test=row["test"],
        tags=row["tags"],
        status=row["status"],
    )
