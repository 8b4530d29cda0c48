"""Takes runs back from processes that have died (rulings C18, C19).

A silent owner is dead when its database session is gone, which shows in its advisory lock being free, or when it has
been silent for the whole ttl. Silence says nothing while the database itself, or this scheduler, could not hear: after
such a gap owners first get the time to beat again. A free lock is looked at twice: a living owner whose session was cut
off comes back at once, with a beat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

import asyncpg

from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import Clock
from services.core.runtime.settings import LeaseSettings
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.ticker import PeriodicDuty

log = logging.getLogger(__name__)

BATCH = 500
EARLY_MS = 2_000

_DEAF_AFTER_S = 5.0
_SECOND_LOOK_S = 0.5


class Rescue(PeriodicDuty):
    """The duty that buries dead owners and puts their runs back into the queue.

    `ended` is called when runs ended by it. `settle_s`: how long owners get to beat again after a gap; None: three
    heartbeats and a second.
    """

    name = "rescue"
    period_s = 0.5

    def __init__(
        self,
        database: Database,
        hints: Hints,
        clock: Clock,
        settings: LeaseSettings,
        ended: Callable[[], None],
        *,
        settle_s: float | None = None,
        traces: RunTraces | None = None,
    ) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._hints = hints
        self._clock = clock
        self._ttl_ms = round(settings.ttl_s * 1_000)
        self._settle_s = settings.heartbeat_s * 3 + 1 if settle_s is None else settle_s
        self._settle_ms = round(self._settle_s * 1_000)
        self._ended = ended
        self._heard: float | None = None
        self._settled = clock.monotonic()

    async def run_once(self) -> Mapping[str, int]:
        """Bury who is dead, then rescue every run whose owner is dead or unknown. Raises Unavailable."""
        buried = await self._bury()
        rescued = failed = 0
        while True:
            async with self._database.connection() as connection:
                rows = await connection.fetch(queries("scheduler")["rescue"], BATCH)
            ready = [row["run"] for row in rows if not row["ended"]]
            self._hints.ready(ready)
            self._traces.lost((row["tenant"], row["run"]) for row in rows)
            self._traces.ended((row["tenant"], row["run"]) for row in rows if row["ended"])
            rescued += len(ready)
            failed += len(rows) - len(ready)
            if len(rows) > len(ready):
                self._ended()
            if len(rows) < BATCH:
                break
        if rescued or failed:
            log.warning("rescued runs of dead owners", extra={"rescued": rescued, "failed": failed})
        return {"buried": buried, "rescued": rescued, "failed": failed}

    async def _bury(self) -> int:
        async with self._database.connection() as connection:
            suspects = await connection.fetch(queries("scheduler")["suspects"], self._ttl_ms, EARLY_MS, self._settle_ms)
            now = self._clock.monotonic()
            if self._heard is not None and now - self._heard > _DEAF_AFTER_S:
                self._settled = now + self._settle_s
            self._heard = now
            if now < self._settled:
                return 0
            expired = {suspect["id"] for suspect in suspects if suspect["expired"]}
            return await self._judge(connection, [suspect["id"] for suspect in suspects], expired)

    async def _judge(self, connection: asyncpg.Connection, suspects: Sequence[int], expired: Collection[int]) -> int:
        """Bury the dead among the suspects; each beat is read again by the statement that buries."""
        free: list[int] = []
        buried = 0
        try:
            for owner in suspects:
                if await connection.fetchval(queries("scheduler")["try_owner_lock"], owner):
                    free.append(owner)
            if free:
                await asyncio.sleep(_SECOND_LOOK_S)
            for owner in {*free, *expired}:
                silent_ms = EARLY_MS if owner in free else self._ttl_ms
                if await connection.fetchval(queries("scheduler")["bury"], owner, silent_ms):
                    buried += 1
                    log.warning("owner is dead", extra={"owner": owner, "session_gone": owner in free})
        finally:
            for owner in free:
                await connection.execute(queries("scheduler")["drop_owner_lock"], owner)
        return buried
