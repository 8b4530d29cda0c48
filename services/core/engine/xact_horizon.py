"""When the transactions of before have ended: what one of them does not see, and what it writes, is then known."""

from __future__ import annotations

import asyncio

from services.core.store.database import Database
from services.core.store.queries import queries

_PAUSE_S = 0.02


class XactHorizon:
    """Numbers of transactions. However many wait, one asks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking: asyncio.Task[int] | None = None

    async def of_now(self) -> int:
        """Transactions that get their number from here on have a greater or equal one, and see what is committed.
        Raises Unavailable.
        """
        async with self._database.connection() as connection:
            return int(await connection.fetchval(queries("engine")["horizon"]))

    async def passed(self, horizon: int) -> bool:
        """Whether all transactions with lower numbers have ended. Raises Unavailable."""
        return await self._oldest() >= horizon

    async def until_passed(self, horizon: int) -> None:
        """Return when all transactions with lower numbers have ended. Raises Unavailable."""
        while True:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask(), name="oldest transaction")
                self._asking.add_done_callback(_is_known)
            if await asyncio.shield(self._asking) >= horizon:
                return

    async def _ask(self) -> int:
        await asyncio.sleep(_PAUSE_S)
        return await self._oldest()

    async def _oldest(self) -> int:
        async with self._database.connection() as connection:
            return int(await connection.fetchval(queries("engine")["xmin"]))


def _is_known(asking: asyncio.Task[int]) -> None:
    """A fault is the waiters'; when none is left it is nobody's."""
    if not asking.cancelled():
        asking.exception()
