"""Forgets the paths of events on which no wait is open any more: every event of the name is looked at along them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from services.core.engine.wait_paths import FIRST, PathKey, WaitPaths
from services.core.store.database import Database

BATCH = 500
_ROUND_S = 300.0
_BATCH_S = 0.1


class ForgetPaths:
    """The duty that goes over all paths, round after round."""

    name = "paths"

    def __init__(self, database: Database) -> None:
        self._paths = WaitPaths(database)
        self._after: PathKey = FIRST

    async def run_once(self) -> Mapping[str, int]:
        """One batch. Raises Unavailable."""
        forgotten, after = await self._paths.forget(self._after, BATCH)
        self._after = after or FIRST
        return {"forgotten": forgotten}

    async def idle(self) -> None:
        """A short pause within a round, a long one after it."""
        await asyncio.sleep(_ROUND_S if self._after is FIRST else _BATCH_S)
