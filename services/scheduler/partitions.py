"""This scheduler among the others: its heartbeat, and the partitions that are its share (rulings C14, C18, C19).

Ownership is only an economy: everything a duty does is right for any partition at any time, done by any number of
schedulers. So there is no handover to get right: a partition without an owner for some seconds is covered by the passes
over all of them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.lifecycle import Component
from services.core.runtime.supervised import UNSUPERVISED, SupervisedProcess
from services.core.store.database import connect, translated
from services.core.store.queries import queries

log = logging.getLogger(__name__)

EVERY_PARTITION = tuple(range(64))

_LEAVE_S = 2.0
_UNLOCKED_S = 0.2  # without the lock only a beat younger than two seconds keeps others from taking the share


class Partitions(Component):
    """The heartbeat of one scheduler and its share of the partitions.

    `generation` moves whenever the share changes. A scheduler that another has declared dead comes back under a new id.
    """

    name = "partitions"

    def __init__(
        self,
        dsn: str,
        *,
        node: str,
        clock: Clock,
        beat_s: float = 3.0,
        supervised: SupervisedProcess = UNSUPERVISED,
    ) -> None:
        """`supervised`: what a supervisor says of this process. The shares of those that it replaces are free."""
        self.owner = secrets.randbits(63)
        self.generation = 0
        self._dsn = dsn
        self._node = node
        self._supervised = supervised
        self._clock = clock
        self._beat_s = beat_s
        self._parts: tuple[int, ...] = ()
        self._confirmed: float | None = None
        self._connection: asyncpg.Connection | None = None
        self._locked = False
        self._cut_off = asyncio.Event()

    def mine(self) -> Sequence[int]:
        """The partitions to look after now: all of them while this scheduler has no share, or cannot confirm it."""
        confirmed = self._confirmed
        if not self._parts or confirmed is None or self._clock.monotonic() - confirmed > 3 * self._beat_s:
            return EVERY_PARTITION
        return self._parts

    def owns(self, partition: int) -> bool:
        """Whether this scheduler has it for certain, and so no other: for what only one of them is to do."""
        confirmed = self._confirmed
        fresh = confirmed is not None and self._clock.monotonic() - confirmed <= 3 * self._beat_s
        return fresh and partition in self._parts

    async def run(self) -> None:
        """Beat until cancelled, over every absence of the database."""
        while True:
            try:
                with translated():
                    await self.beat()
            except Unavailable as error:
                log.debug("heartbeat failed", extra={"fault": type(error.__cause__ or error).__name__})
                self._drop()
            await self._pause()

    async def _pause(self) -> None:
        """Until the next beat, or until the session is cut off: without its lock a silent scheduler counts as dead."""
        try:
            async with asyncio.timeout(self._beat_s if self._locked else min(_UNLOCKED_S, self._beat_s)):
                await self._cut_off.wait()
        except TimeoutError:
            return
        self._cut_off.clear()

    async def beat(self) -> None:
        """One heartbeat, and the share as it is after it. Raises Unavailable or a passing driver error."""
        connection = await self._connected()
        asked = self._clock.monotonic()
        parts = await connection.fetchval(
            queries("scheduler")["share_parts"], self.owner, round(3 * self._beat_s * 1_000), timeout=self._beat_s
        )
        if parts is None:
            log.warning("this scheduler was declared dead; it goes on under a new id", extra={"owner": self.owner})
            self._drop()
            self.owner = secrets.randbits(63)
            self._take(())
            return
        self._confirmed = asked
        self._take(tuple(parts))

    async def stop(self) -> None:
        """Leave: others take the share at their next beat. A second call does nothing."""
        connection, self._connection = self._connection, None
        if connection is None or connection.is_closed():
            return
        try:
            with translated():  # also where a beat was cancelled in it a moment ago
                await connection.execute(queries("scheduler")["give_parts_back"], self.owner, timeout=_LEAVE_S)
                await connection.execute(queries("scheduler")["remove_scheduler"], self.owner, timeout=_LEAVE_S)
                await connection.close(timeout=_LEAVE_S)
        except Unavailable:
            connection.terminate()

    def _take(self, parts: tuple[int, ...]) -> None:
        if parts != self._parts:
            self._parts = parts
            self.generation += 1
            log.info("partitions", extra={"count": len(parts)})

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            connection = await connect(self._dsn, "runr-scheduler-owner")
            self._connection = connection
            self._locked = False
            connection.add_termination_listener(self._terminated)
            if self._supervised.replaces:
                await connection.execute(queries("scheduler")["bury_processes"], self._supervised.replaces)
            await connection.execute(
                queries("scheduler")["register_scheduler"], self.owner, self._node, self._supervised.name
            )
        if not self._locked:
            # Tried, not waited for: a former session of ours that the server has not missed yet holds it just as well.
            self._locked = await self._connection.fetchval(queries("scheduler")["try_owner_lock"], self.owner)
        return self._connection

    def _terminated(self, connection: object) -> None:
        if connection is self._connection:
            self._locked = False
            self._cut_off.set()

    def _drop(self) -> None:
        connection, self._connection, self._locked = self._connection, None, False
        if connection is not None:
            connection.terminate()
