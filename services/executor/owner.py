"""The lease of a process: one row, one heartbeat, one advisory lock for all runs it holds (rulings C18–C20).

The heartbeat comes from the event loop itself: a process whose loop stands still must lose its runs. The session lock
is how others tell a dead process from a slow one without waiting for the ttl.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.settings import LeaseSettings
from services.core.store.database import PASSING, connect, translated
from services.core.store.queries import queries
from services.executor.arriving import Tenure

log = logging.getLogger(__name__)

_SOON_S = 0.2  # without the lock only a beat younger than two seconds keeps others from burying this owner
_STRANGE_S = 5.0
_MOST_LET_GO = 10_000
_LOOKS = 3
"""Beats that come one after the other where claims are in doubt: who is no stranger at one may be at the next."""

Known = Callable[[], Collection[Tenure]]
"""The tenures that this process knows of."""
UnderWay = Callable[[], Collection[object]]
"""The claims of this process that have not come to an end."""


class OwnerLost(Exception):
    """Others have declared this owner dead, or it has heard nothing for its ttl: all its leases are gone."""


class _Stranger(NamedTuple):
    """A tenure that nobody here knew of, since when (monotonic), and the claims that could have brought it then."""

    since: float
    claims: frozenset[object]


class Owner:
    """This process as a holder of runs, under a random id that is never used again."""

    def __init__(
        self, dsn: str, *, node: str, settings: LeaseSettings, clock: Clock, process: UUID | None = None
    ) -> None:
        """`process`: what the supervisor calls this process, if there is one."""
        self.id = secrets.randbits(63)
        self._dsn = dsn
        self._node = node
        self._process = process
        self._settings = settings
        self._clock = clock
        self._connection: asyncpg.Connection | None = None
        self._has_lock = False
        self._has_left = False
        self._hurry = asyncio.Event()
        self._looks = 0
        self._confirmed = clock.monotonic()
        self._strangers: dict[Tenure, _Stranger] = {}
        self._let_go: dict[Tenure, None] = {}
        self._absent: set[Tenure] = set()
        """What is in memory, and was not ours at the last beat."""

    @property
    def may_invoke(self) -> bool:
        """Whether a new invocation may begin: the last confirmed beat is younger than half the ttl."""
        return self._silence < self._settings.ttl_s / 2

    @property
    def _silence(self) -> float:
        return self._clock.monotonic() - self._confirmed

    async def register(self) -> None:
        """Begin to exist. Raises Unavailable."""
        asked = self._clock.monotonic()
        connection = await self._connected()
        with translated():
            await connection.execute(
                queries("executor")["register_owner"], self.id, "executor", self._node, self._process
            )
        self._confirmed = asked

    async def keep(self, known: Known, under_way: UnderWay, doubt: Callable[[Collection[UUID]], object]) -> None:
        """Beat until cancelled, or until it has left. Raises OwnerLost.

        Each beat also lets go of runs that the database counts as ours and this process does not know: claims whose
        answer was lost (rulings C4). `known` gives the tenures in memory, and those that are being read. One that is
        unknown at two beats is a stranger when all claims that were `under_way` at the first have come to an end, or
        have taken for longer than the answer to a claim takes. And `doubt` is given runs in memory that the database
        did not count as ours at two beats in a row: whoever ended them, or took them, was not heard.
        """
        away = False
        while True:
            await self._pause()
            if self._has_left:
                return
            try:
                async with asyncio.timeout(max(0.0, self._settings.ttl_s - self._silence)):
                    alive = await self._beat(known, under_way, doubt)
                away = False
            except (*PASSING, Unavailable) as error:
                if not away and not self._has_left:  # once, not at every try
                    log.warning("heartbeat failed: %s", type(error).__name__)
                away = True
                self.hang_up()
                alive = self._silence < self._settings.ttl_s
            if not alive and not self._has_left:
                self.hang_up()
                raise OwnerLost

    def look_soon(self) -> None:
        """Somebody may have taken runs without hearing of it, or has dropped them: the next beats come at once."""
        self._looks = _LOOKS
        self._hurry.set()

    async def _pause(self) -> None:
        """Until the next beat, or until the session is cut off: without its lock a silent owner counts as dead."""
        try:
            async with asyncio.timeout(self._settings.heartbeat_s if self._has_lock and not self._looks else _SOON_S):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    def has_let_go(self, tenure: Tenure) -> bool:
        """Whether the heartbeat took it for a stranger's: whoever comes with it now is too late."""
        return tenure in self._let_go

    async def _beat(self, known: Known, under_way: UnderWay, doubt: Callable[[Collection[UUID]], object]) -> bool:
        """Whether this owner is alive to the others."""
        # A slow server is given time: who hangs up gives away the lock by which others tell the living from the dead.
        connection = await self._connected()
        asked = self._clock.monotonic()
        with translated():
            if not await connection.fetchval(queries("executor")["beat"], self.id, timeout=self._settings.ttl_s / 2):
                return False
            self._confirmed = asked
            before = set(known())
            rows = await connection.fetch(queries("executor")["held_runs"], self.id)
            ours = {(UUID(int=row["id"].int), row["epoch"]) for row in rows}
            await self._leave_strangers(connection, ours.difference(known()), frozenset(under_way()))
        if self._looks:
            self._looks -= 1
            return True  # so soon after another beat what has just ended may be in memory yet
        absent = before - ours
        if twice := absent & self._absent:
            doubt({run for run, _ in twice})
        self._absent = absent
        return True

    async def leave(self) -> None:
        """Stop existing, after everything was let go. Nothing of it comes back, also where it still beats."""
        self._has_left = True
        self._hurry.set()
        try:
            if self._connection is not None and not self._connection.is_closed():
                with translated():
                    await self._connection.execute(queries("executor")["remove_owner"], self.id, timeout=2)
                    await self._connection.close(timeout=2)
        except Unavailable:
            log.warning("the row of this owner is left to be forgotten")
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """Give up the connection, and with it the lock, as the end of the process does; a beat makes it anew."""
        connection, self._connection, self._has_lock = self._connection, None, False
        if connection is not None:
            connection.terminate()

    async def _leave_strangers(
        self, connection: asyncpg.Connection, unknown: Collection[Tenure], under_way: frozenset[object]
    ) -> None:
        now = self._clock.monotonic()
        before, fresh = self._strangers, _Stranger(now, under_way)
        self._strangers = {tenure: before.get(tenure, fresh) for tenure in unknown}
        patience_s = max(_STRANGE_S, 2 * self._settings.heartbeat_s)
        lost = [
            tenure
            for tenure, seen in self._strangers.items()
            if seen is not fresh and (now - seen.since >= patience_s or seen.claims.isdisjoint(under_way))
        ]
        if lost:
            log.warning("letting go of %d runs whose claim was never answered", len(lost))
            self._let_go.update(dict.fromkeys(lost))
            for tenure in list(islice(self._let_go, max(0, len(self._let_go) - _MOST_LET_GO))):
                del self._let_go[tenure]
            runs, epochs = zip(*lost, strict=True)
            await connection.fetch(queries("executor")["leave_some"], self.id, runs, epochs)

    async def _connected(self) -> asyncpg.Connection:
        """The connection, with the owner's lock as soon as it can be had: the server may still have a session of this
        process that is cut off, and until that is gone the heartbeat alone speaks for the owner.
        """
        if self._connection is None or self._connection.is_closed():
            connection = await connect(self._dsn, "runr-executor-owner")
            if self._has_left:  # meanwhile
                connection.terminate()
                raise Unavailable("this owner has left")
            self._connection, self._has_lock = connection, False
            connection.add_termination_listener(self._terminated)
        if not self._has_lock:
            with translated():
                self._has_lock = await self._connection.fetchval(queries("executor")["try_owner_lock"], self.id)
        return self._connection

    def _terminated(self, connection: object) -> None:
        if connection is self._connection:
            self._has_lock = False
            self._hurry.set()
