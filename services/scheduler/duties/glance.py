"""One look a second at whether there is anything to do at all, for the duties that seldom have anything: nearly always
there is not, and each of them would find that out by itself.

It looks at each whole second of the database's clock, at which cron triggers are due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.core.store.queries import queries
from services.scheduler.ticker import Duty

Sight = Literal["due", "cron", "overdue", "marked", "blocked", "queued", "orphaned", "arming", "jobs"]
"""Due timers, and due cron triggers; runs whose own time is over; marks of any kind; runs before gates; runs in the
queue; runs of owners that are dead or unknown; waits that look back; turns of bulk jobs.
"""

AT_LATEST_S = 30.0
"""So often a duty that is woken by what is seen looks in any case."""

_SECOND_MS = 1_000


class Glance:
    """The duty that wakes others."""

    name = "glance"

    def __init__(self, database: Database, theirs: DatabaseClock) -> None:
        self._database = database
        self._theirs = theirs
        self._waiting: list[tuple[Sight, Callable[[], None]]] = []

    def wakes(self, sight: Sight, duty: Duty) -> Duty:
        """The duty, run when this is seen, and in any case now and then."""
        seen = asyncio.Event()
        self.tells(sight, seen.set)
        return _Woken(duty, seen)

    def tells(self, sight: Sight, wake: Callable[[], None]) -> None:
        """Call `wake` whenever this is seen: of a duty that can be woken by other things too."""
        self._waiting.append((sight, wake))

    async def run_once(self) -> Mapping[str, int]:
        """Look, and wake whom it concerns. Raises Unavailable."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(queries("scheduler")["glance"])
        assert row is not None, "it answers one row"
        concerned = [wake for sight, wake in self._waiting if row[sight]]
        for wake in concerned:
            wake()
        return {"woken": len(concerned)}

    async def idle(self) -> None:
        """Until the database's next whole second."""
        await asyncio.sleep((_SECOND_MS - self._theirs.certain_ms() % _SECOND_MS) / 1_000)


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
        await woken(self._seen)


async def woken(event: asyncio.Event, within_s: float = AT_LATEST_S) -> None:
    """Return when the event is set, or after that time."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return
