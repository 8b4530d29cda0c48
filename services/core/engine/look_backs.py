"""The looks back of a process, in the background: fair over tenants, and only so many in memory."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from uuid import UUID

from services.core.domain.errors import Unavailable
from services.core.engine.look_back import LookBack
from services.core.runtime.fair_turns import FairTurns
from services.core.runtime.lifecycle import Component
from services.core.store.database import Database
from services.core.store.queries import queries

log = logging.getLogger(__name__)

_AT_ONCE = 2
_MOST = 2_000
_MOST_EACH = 200
_ALWAYS_EACH = 4
_SWEPT_EACH = 20


class LookBacks(Component):
    """Arms waits. What does not fit in is left to the sweep, which is the scheduler's; so is what fails.

    Each page of a look is a turn: of two tenants each gets every second, however many looks it has, and both get theirs
    at once.
    """

    name = "look-backs"

    def __init__(self, database: Database, look_back: LookBack) -> None:
        self._database = database
        self._look_back = look_back
        self._turns = FairTurns(_AT_ONCE, each=1)
        self._looks: dict[UUID, asyncio.Task[None]] = {}
        self._tenants: Counter[int] = Counter()

    def offer(self, tenant: int, wait: UUID) -> bool:
        """Look back for a wait of the tenant. Whether there is room for it, or it is being looked for already."""
        if wait in self._looks:
            return True
        most = _MOST_EACH if len(self._looks) < _MOST else _ALWAYS_EACH
        if self._tenants[tenant] >= most:
            return False
        self._tenants[tenant] += 1
        self._looks[wait] = asyncio.create_task(self._look(tenant, wait), name=f"look back {wait}")
        return True

    async def sweep(self, min_age_ms: int) -> int:
        """Look back for waits of at least this age that are still arming, of each tenant the oldest. How many were
        found that fit in. Raises Unavailable.

        From then on their timeouts are held up for so long only: one that is due is not fired before somebody has
        looked, however long nobody could.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("engine")["arming_waits"], min_age_ms, _SWEPT_EACH)
            taken = [row["id"] for row in rows if self.offer(row["tenant"], row["id"])]
            if taken:
                await connection.execute(queries("engine")["looks"], taken)
        return len(taken)

    async def run(self) -> None:
        """Until cancelled; then nobody looks any more."""
        try:
            await asyncio.Event().wait()
        finally:
            for look in self._looks.values():
                look.cancel()

    async def idle(self) -> None:
        """Return when nobody looks."""
        while self._looks:
            await asyncio.wait(self._looks.values())

    async def _look(self, tenant: int, wait: UUID) -> None:
        try:
            await self._look_back.arm(wait, lambda: self._turns.turn(tenant))
        except Unavailable:
            log.warning("left to the scheduler: the database is away")
        except Exception:
            log.exception("a wait cannot look back", extra={"wait": str(wait)})
        finally:
            del self._looks[wait]
            self._tenants[tenant] -= 1
            if not self._tenants[tenant]:
                del self._tenants[tenant]
