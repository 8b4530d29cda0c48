"""One look a second at whether there is anything to do at all, for the duties that seldom have anything: nearly always
there is not, and each of them would find that out by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal

from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.ticker import Duty, PeriodicDuty

Sight = Literal["overdue", "marked", "blocked", "queued"]
"""Runs whose own time is over; marks of any kind; runs before gates; runs in the queue."""

_AT_LATEST_S = 10.0


class Glance(PeriodicDuty):
    """The duty that wakes others."""

    name = "glance"
    period_s = 1.0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[tuple[Sight, asyncio.Event]] = []

    def wakes(self, sight: Sight, duty: Duty) -> Duty:
        """The duty, run when this is seen, and every ten seconds in any case."""
        seen = asyncio.Event()
        self._waiting.append((sight, seen))
        return _Woken(duty, seen)

    async def run_once(self) -> Mapping[str, int]:
        """Look, and wake whom it concerns. Raises Unavailable."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(queries("scheduler")["glance"])
        assert row is not None, "it answers one row"
        concerned = [seen for sight, seen in self._waiting if row[sight]]
        for seen in concerned:
            seen.set()
        return {"woken": len(concerned)}


class _Woken:
    """A duty that waits to be woken instead of for its period."""

    def __init__(self, duty: Duty, seen: asyncio.Event) -> None:
        self.name = duty.name
        self._duty = duty
        self._seen = seen

    async def run_once(self) -> Mapping[str, int]:
        self._seen.clear()
        return await self._duty.run_once()

    async def idle(self) -> None:
        try:
            async with asyncio.timeout(_AT_LATEST_S):
                await self._seen.wait()
        except TimeoutError:
            return
