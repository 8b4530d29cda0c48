"""`lookback`: a wait also takes an event that came before it was stored, without a race (rulings C8, C29).

The wait is stored "arming": live for new events at once. Then stored events are read, oldest first. If a transaction
was in flight that could have accepted an event without seeing the wait, they are read again when it has ended: that
reading is complete. Nobody blocks anybody; a long transaction only delays the end of the arming. Events are read in
pages, and between two of them others have their turn: a look may take long, no other look has to wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any
from uuid import UUID

import asyncpg

from services.core.domain.expression import Condition, condition_from_json, condition_holds
from services.core.domain.matching import event_value
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.past_events import Page, PastEvents
from services.core.engine.payload import event_payload
from services.core.engine.run_traces import RunTraces
from services.core.engine.xact_horizon import XactHorizon
from services.core.runtime.ids import ulid_text
from services.core.runtime.off_loop import OffLoop
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query

Turn = Callable[[], AbstractAsyncContextManager[None]]
"""What a look waits for before each piece of work at the database."""


class LookBack:
    """Arms waits that look back."""

    def __init__(self, database: Database, hints: Hints, traces: RunTraces | None = None) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._hints = hints
        self._gates = Gates(database, hints)
        self._horizon = XactHorizon(database)
        self._off_loop = OffLoop("look-back")

    async def arm(self, wait: UUID, turn: Turn = nullcontext) -> None:
        """Resume the wait by a stored event, or make sure that there is none. Harmless when called twice. Raises
        Unavailable.
        """
        async with turn():
            # The wait is committed: who has its number from here on sees it.
            horizon = await self._horizon.of_now()
            complete = await self._horizon.passed(horizon)
        while True:
            if await self._read(wait, turn):
                return
            if complete:
                async with turn(), self._database.connection() as connection:
                    await connection.execute(queries("engine")["armed"], wait)
                return
            await self._horizon.until_passed(horizon)
            complete = True

    async def _read(self, wait: UUID, turn: Turn) -> bool:
        """Read the stored events once. Whether the wait is gone: resumed by one of them, or otherwise."""
        async with turn(), self._database.connection() as connection:
            row = await connection.fetchrow(queries("engine")["arming_wait"], wait)
        if row is None:
            return True
        condition = None if row["cond"] is None else condition_from_json(row["cond"])
        events = PastEvents(row)
        while events.more:
            async with turn():
                async with self._database.connection() as connection:
                    if events.pages and not await connection.fetchval(queries("engine")["is_arming"], wait):
                        return True
                    page = await events.next_page(connection)
                for event in await self._off_loop.run(page.size, _fulfilling, page, condition):
                    if await self._deliver(row, event):
                        return True
        return False

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
                queries("engine")["deliver_event"], [wait["id"]], event["id"], payload, self._traces.enabled
            )
        self._traces.delivered((row["tenant"], row["run"], row["resolved"]) for row in rows)
        free = [row for row in rows if row["owner"] is None]
        self._hints.ready([row["run"] for row in free if row["ga"] is None])
        self._hints.delivered((row["run"], row["owner"]) for row in rows)
        await self._gates.grant((row["ga"], row["gb"]) for row in free)
        return True


def _fulfilling(page: Page, condition: Condition | None) -> Sequence[asyncpg.Record]:
    """The events of a page that the wait may take, the oldest first."""
    if condition is None:
        return page.events
    return [event for event in page.events if condition_holds(condition, _value(event))]


def _value(event: asyncpg.Record) -> dict[str, Any]:
    return event_value(id=ulid_text(event["id"]), name=event["name"], data=event["data"], ts=event["ts"])
