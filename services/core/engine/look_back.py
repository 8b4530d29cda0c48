"""`lookback`: a wait also takes an event that came before it was stored, without a race (rulings C8, C29).

The wait is stored "arming": live for new events at once. Then stored events are read, oldest first, until one reading
is known to be complete: every transaction that could have accepted an event without seeing the wait had ended before
the reading began. Nobody blocks anybody; a long transaction only delays the end of the arming.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.domain.matching import event_value, holds
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.payload import event_payload
from services.core.engine.run_traces import RunTraces
from services.core.runtime.ids import ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query

log = logging.getLogger(__name__)

_PAGE = 500
_PAUSES = (0.005, 0.01, 0.02, 0.05)


class LookBack:
    """Arms waits that look back."""

    def __init__(self, database: Database, hints: Hints, traces: RunTraces | None = None) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._hints = hints
        self._gates = Gates(database, hints)

    async def arm(self, wait: UUID) -> None:
        """Resume the wait by a stored event, or make sure that there is none. Harmless when called twice. Raises
        Unavailable.
        """
        async with self._database.connection() as connection:
            horizon = await connection.fetchval(queries("engine")["horizon"])
        pauses = iter(_PAUSES)
        while True:
            async with self._database.connection() as connection:
                row = await connection.fetchrow(queries("engine")["arming_wait"], wait)
                if row is None:
                    return
                # Read before the events are: what was in flight then may be missed by the reading.
                complete = await connection.fetchval(queries("engine")["xmin"]) >= horizon
                event = await _first_match(connection, row)
                if event is None and complete:
                    await connection.execute(queries("engine")["armed"], wait)
                    return
            if event is None:
                await asyncio.sleep(next(pauses, _PAUSES[-1]))
            elif await self._deliver(row, event):
                return

    async def sweep(self, min_age_ms: int, limit: int = 100) -> int:
        """Arm waits whose executor did not. Returns how many. Raises Unavailable."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("engine")["arming_waits"], min_age_ms, limit)
        for row in rows:
            try:
                await self.arm(row["id"])
            except Unavailable:
                raise
            except Exception:
                log.exception("a wait cannot look back", extra={"wait": str(row["id"])})
        return len(rows)

    async def _deliver(self, wait: asyncpg.Record, event: asyncpg.Record) -> bool:
        """Resume the wait by this event, unless it is gone or the run has had the event already. Whether the wait is
        gone.
        """
        payload = event_payload(event["id"], event["name"], event["data"], event["ts"])
        async with self._database.transaction() as connection:
            await connection.fetch(queries("engine")["lock_runs"], wait["tenant"], [wait["run"]])
            had = tenant_query("engine", "had_event", wait["tenant"])
            if await connection.fetchval(had, wait["run"], event["id"]):
                return False
            rows = await connection.fetch(
                queries("engine")["deliver"],
                [wait["id"]],
                ["c"],
                [payload],
                [None],
                [event["id"]],
                self._traces.enabled,
            )
        self._traces.delivered((row["tenant"], row["run"], row["resolved"]) for row in rows)
        free = [row for row in rows if row["owner"] is None]
        self._hints.ready([row["run"] for row in free if row["ga"] is None])
        await self._gates.grant(row["ga"] for row in free)
        return True


async def _first_match(connection: asyncpg.Connection, wait: asyncpg.Record) -> asyncpg.Record | None:
    """The oldest stored event that the wait may look back to: not had by its run, and fulfilling its condition."""
    after: UUID | None = None
    query = tenant_query("engine", "past_events", wait["tenant"])
    while True:
        rows = await connection.fetch(query, wait["event"], wait["since"], wait["run"], after, _PAGE)
        for event in rows:
            value = event_value(id=ulid_text(event["id"]), name=event["name"], data=event["data"], ts=event["ts"])
            if holds(wait["cond"], value):
                return event
        if len(rows) < _PAGE:
            return None
        after = rows[-1]["id"]
