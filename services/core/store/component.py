"""The database as a component of a process: opened first, closed last, part of readiness.

A service waits for a database that is away or not migrated yet: which of them is started first does not matter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from services.core.domain.errors import Unavailable
from services.core.runtime.health import Health, NotReady
from services.core.runtime.lifecycle import Component
from services.core.store.connect_fault import away
from services.core.store.database import Database
from services.core.store.migrate import missing_migrations

log = logging.getLogger(__name__)

_PAUSE_S = 0.5
_SAY_AGAIN_S = 10.0


class DatabaseComponent(Component):
    """Opens the pool, waiting for a server that is not there yet. A server that is unfit ends the process."""

    name = "database"

    def __init__(self, database: Database, health: Health) -> None:
        self._database = database
        self._said: dict[str, float] = {}
        health.register(self.name, self._check)

    async def start(self) -> None:
        """See `Component.start`. Raises UnfitDatabase."""
        await self._patiently(self._database.open)
        await self._patiently(self._wait_for_schema)

    async def stop(self) -> None:
        """See `Component.stop`."""
        await self._database.close()

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await work()
            except Unavailable as error:
                self._say("waiting for the database", reason=away(error, self._database.dsn))
                await asyncio.sleep(_PAUSE_S)

    async def _wait_for_schema(self) -> None:
        async with self._database.connection() as connection:
            while missing := await missing_migrations(connection):
                self._say("waiting for migrations: run `runr migrate`", missing=missing)
                await asyncio.sleep(_PAUSE_S)

    def _say(self, message: str, **fields: object) -> None:
        """Logs at once, and again only every 10 s, however often it is asked."""
        now = asyncio.get_running_loop().time()
        if now - self._said.get(message, -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
            self._said[message] = now
            log.warning(message, extra=fields)

    async def _check(self) -> None:
        try:
            await self._database.ping()
        except Unavailable as error:
            raise NotReady("the database does not answer") from error
