"""Platform events `runr/run.completed|failed|cancelled|timed_out` (engine section 5): stored only where something
listens.

The end of a run leaves a mark in its transaction when a workflow is triggered by such events or a wait listens.
Carrying the mark out is accepting an event whose id is made of the run and its epoch, so doing it twice changes
nothing.
"""

from __future__ import annotations

import hashlib
import json
from uuid import UUID

import asyncpg

from services.core.domain.event import RUN_EVENTS
from services.core.domain.json_fault import MAX_DEPTH, deeper_than
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.definitions import TenantDefinitions
from services.core.engine.sweeping import sweep_marks
from services.core.runtime.ids import ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query

_MOST_OUTPUT = 128 * 1024
_LEVELS = 2  # the event and its data


class RunEventMarks:
    """Carries out marks of kind run_event."""

    def __init__(self, database: Database, acceptor: EventAcceptor) -> None:
        self._database = database
        self._acceptor = acceptor

    async def sweep(self, min_age_ms: int, limit: int = 100) -> int:
        """Accept the events of marks older than `min_age_ms`. Returns how many marks were done. Raises Unavailable."""
        return await sweep_marks(self._database, "run_event_marks", self._carry_out, min_age_ms=min_age_ms, limit=limit)

    async def _carry_out(self, mark: asyncpg.Record) -> None:
        tenant, run = mark["tenant"], mark["target"]
        status, epoch, ended_ms = mark["body"].split("/")
        async with self._database.connection() as connection:
            row = await connection.fetchrow(tenant_query("engine", "ended_run", tenant), run)
        if row is not None:
            event = _event_id(run, epoch, int(ended_ms))
            incoming = Incoming(
                name=_name(status),
                data=_data(row, status),
                event_id=f"{ulid_text(run)}/{epoch}",
                src="r",
                ts=int(ended_ms),
                source="platform",
                project=row["project_id"],
                run=run,
                test=row["test"],
                passed=_lineage(row),
            )
            await self._acceptor.accept_as(tenant, [incoming], [event], accept_id=event, trace=row["trace"])
        async with self._database.connection() as connection:
            await connection.execute(queries("engine")["delete_marks"], [mark["id"]])


def hears_ends(definitions: TenantDefinitions, status: str) -> bool:
    """Whether a workflow of the tenant is triggered by runs that end so."""
    return _name(status) in definitions.by_event


def _name(status: str) -> str:
    return f"runr/run.{status}"


def _event_id(run: UUID, epoch: str, ended_ms: int) -> UUID:
    """A ULID of the time of the end, the same whoever makes it."""
    digest = hashlib.sha256(f"{run}/{epoch}".encode()).digest()[:10]
    return UUID(bytes=ended_ms.to_bytes(6, "big") + digest)


def _lineage(row: asyncpg.Record) -> frozenset[str]:
    """The workflows through whose ends this run came to be, and its own: none of them is started again (no loops)."""
    return frozenset(_lineage_list(row))


def _lineage_list(row: asyncpg.Record) -> list[str]:
    before: list[str] = []
    if row["event_name"] in RUN_EVENTS:
        data = json.loads(row["event_data"] or "{}")
        given = data.get("lineage") if isinstance(data, dict) else None
        # A replay may have replaced the data: only names are taken from it.
        before = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    return [*before, f"{row['project']}/{row['workflow']}"]


def _data(row: asyncpg.Record, status: str) -> str:
    fixed = {
        "run_id": ulid_text(row["id"]),
        "workflow": row["workflow"],
        "project": row["project"],
        "status": status,
        "event": {"id": ulid_text(row["event"]), "name": row["event_name"]},
        "lineage": _lineage_list(row),
    }
    text = json.dumps(fixed)[:-1]
    if row["error"] is not None:
        text += f',"error":{row["error"]}'
    output = row["output"]
    # The event holds the output one level deeper than it was: one at the limit of depth would make an event past it.
    if output is not None and len(output) <= _MOST_OUTPUT and not deeper_than(output, MAX_DEPTH - _LEVELS):
        text += f',"output":{output}'
    return text + "}"
