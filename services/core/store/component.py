"""The database as a component of a process: opened first, closed last, part of readiness."""

from __future__ import annotations

import asyncio
import logging

from services.core.domain.errors import Unavailable
from services.core.runtime.health import Health, NotReady
from services.core.runtime.lifecycle import Component
from services.core.store.database import Database

log = logging.getLogger(__name__)

_PAUSE_S = 0.5


class DatabaseComponent(Component):
    """Opens the pool, waiting for a server that is not there yet. A server that is unfit ends the process."""

    name = "database"

    def __init__(self, database: Database, health: Health) -> None:
        self._database = database
        health.register(self.name, self._check)

    async def start(self) -> None:
        """See `Component.start`. Raises UnfitDatabase."""
        while True:
            try:
                return await self._database.open()
            except Unavailable:
                log.warning("waiting for the database")
                await asyncio.sleep(_PAUSE_S)

    async def stop(self) -> None:
        """See `Component.stop`."""
        await self._database.close()

    async def _check(self) -> None:
        try:
            await self._database.ping()
        except Unavailable as error:
            raise NotReady("the database does not answer") from error
