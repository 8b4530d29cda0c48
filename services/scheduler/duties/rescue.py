"""Takes runs back from processes that have died (rulings C18, C19, C21).

A silent owner is dead when its database session is gone, which shows in its advisory lock being free, or when it has
been silent for the whole ttl. Silence is what this scheduler has seen by its monotonic clock: that no beat was added.
The database's clock may step. So it never condemns alone, and only makes a scheduler that has just begun to look sooner
sure of what another has seen before it; and it saves nobody. Silence says nothing while the database itself, or this
scheduler, could not hear: after such a gap owners first get the time to beat again. A free lock is looked at twice: a
living owner whose session was cut off comes back at once, with a beat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import asyncpg

from services.core.engine.hints import Hints
from services.core.engine.rescue_runs import Rescued, RunRescuer
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import Clock
from services.core.runtime.settings import LeaseSettings
from services.core.store.database import Database
from services.core.store.queries import queries
from services.scheduler.duties.glance import woken
from services.scheduler.duties.silence import Silence

log = logging.getLogger(__name__)

EARLY_MS = 2_000

_DEAF_AFTER_S = 5.0
_SECOND_LOOK_S = 0.5
_PAUSES_S = (0.5, 2.0)
_LATER_S = 0.01  # a silence is to be over the limit when it is looked at


class Rescue:
    """The duty that buries dead owners and queues their runs, or keeps them for their workers a moment. It looks when
    an owner may have been silent for so long that it counts, and when it is woken: there are runs of dead owners.

    `ended` is called when runs ended by it. `settle_s`: how long owners get to beat, after a gap or when the database's
    clock says that they are silent; None: three heartbeats and a second. `own` tells the owner that this process is.
    """

    name = "rescue"

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
        own: Callable[[], int] | None = None,
    ) -> None:
        self._database = database
        self._own = own
        self._woken = asyncio.Event()
        self._orphans = True  # for all that is known
        self._pause_s = _PAUSES_S[0]
        self._rescuer = RunRescuer(database, hints, traces or RunTraces.off(database), ended=ended)
        self._clock = clock
        self._ttl_s = settings.ttl_s
        self._settle_s = settings.heartbeat_s * 3 + 1 if settle_s is None else settle_s
        self._silence = Silence()
        self._heard: float | None = None
        self._server: datetime | None = None
        self._settled = self._server_settled = clock.monotonic()

    def wake(self) -> None:
        """There are runs whose owner is dead or unknown."""
        self._orphans = True
        self._woken.set()

    async def idle(self) -> None:
        """Until woken, or until an owner may have been silent for long."""
        await woken(self._woken, self._pause_s)

    async def run_once(self) -> Mapping[str, int]:
        """Bury who is dead, then rescue every run whose owner is dead or unknown. Raises Unavailable."""
        self._woken.clear()
        buried = await self._bury()
        rescued = Rescued()
        if buried or self._orphans:
            self._orphans = False
            rescued = await self._rescuer.rescue()
        return {"buried": buried, "rescued": rescued.rescued, "failed": rescued.failed, "parked": rescued.parked}

    async def _bury(self) -> int:
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("scheduler")["owners"])
            now = self._clock.monotonic()
            self._hear(rows[0]["server"], rows[0]["server_ms"], now)
            own = None if self._own is None else self._own()
            owners = [row for row in rows if row["id"] is not None and row["id"] != own]
            self._silence.look({row["id"]: row["beats"] for row in owners}, now)
            longest_s = max((self._silent_s(row, now) for row in owners), default=0.0)
            self._pause_s = min(max(EARLY_MS / 1_000 - longest_s + _LATER_S, _PAUSES_S[0]), _PAUSES_S[1])
            if now < self._settled:
                return 0
            heard = now >= self._server_settled
            suspects = [row for row in owners if heard or self._silence.has_beaten(row["id"])]
            early = [row for row in suspects if self._is_silent(row, now, EARLY_MS / 1_000, 0.0)]
            expired = [row for row in suspects if self._is_silent(row, now, self._ttl_s, self._settle_s)]
            return await self._judge(connection, early, {row["id"]: row["beats"] for row in expired})

    def _hear(self, server: datetime, server_ms: int, now: float) -> None:
        """Note that the server has answered; it began at `server`, which is `server_ms` ago by its clock."""
        if self._heard is not None and now - self._heard > _DEAF_AFTER_S:
            self._settled = now + self._settle_s
            self._silence.forget()
        self._heard = now
        if server == self._server:
            return
        # One that has just started answers nobody for a moment: until then only the silence of owners that have beaten
        # since says something. Of one that was there before this scheduler only its clock tells, which may be wrong.
        if self._server is not None or server_ms < self._settle_s * 1_000:
            self._server_settled = now + self._settle_s
            self._silence.forget()
        self._server = server

    def _silent_s(self, owner: asyncpg.Record, now: float) -> float:
        by_server: float = owner["silent_ms"] / 1_000
        return max(self._silence.of(owner["id"], now), by_server)

    def _is_silent(self, owner: asyncpg.Record, now: float, limit_s: float, seen_s: float) -> bool:
        """Seen to be silent for `limit_s`; or silent so long by the database's clock, and seen to be for `seen_s`."""
        seen = self._silence.of(owner["id"], now)
        return seen >= limit_s or (owner["silent_ms"] >= limit_s * 1_000 and seen >= seen_s)

    async def _judge(
        self, connection: asyncpg.Connection, early: Sequence[asyncpg.Record], expired: Mapping[int, int]
    ) -> int:
        """Bury those whose lock is free, and the expired (their beats by owner), unless one has beaten meanwhile."""
        free: dict[int, int] = {}
        buried = 0
        try:
            for owner in early:
                if await connection.fetchval(queries("scheduler")["try_owner_lock"], owner["id"]):
                    free[owner["id"]] = owner["beats"]
            if free:
                await asyncio.sleep(_SECOND_LOOK_S)
            for owner_id, beats in {**expired, **free}.items():
                if await connection.fetchval(queries("scheduler")["bury"], owner_id, beats):
                    buried += 1
                    log.warning("owner is dead", extra={"owner": owner_id, "session_gone": owner_id in free})
        finally:
            for owner_id in free:
                await connection.execute(queries("scheduler")["drop_owner_lock"], owner_id)
        return buried
