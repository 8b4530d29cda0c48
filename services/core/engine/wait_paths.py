"""Forgets the paths of events on which no wait is open any more, and loses none for a wait that is just being opened.

Nobody locks a path to open a wait on it. So a path is marked idle first, and forgotten only when every transaction that
may not have seen the mark has ended: the waits that those opened are seen then, and all later ones have taken their
path back (`rt.paths_v1`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from services.core.engine.xact_horizon import XactHorizon
from services.core.store.database import Database
from services.core.store.queries import queries

_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class PathKey:
    """A path of events of a name (by its hash) of a tenant."""

    tenant: int
    name_h: int
    path: str


FIRST = PathKey(0, 0, "")


class WaitPaths:
    """The paths at which arriving events are looked at."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._horizon = XactHorizon(database)

    async def forget(self, after: PathKey, limit: int) -> tuple[int, PathKey | None]:
        """Look at the next `limit` paths behind `after`, and forget those that are idle. How many were forgotten, and
        behind which to go on; None: it was the last. Raises Unavailable.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                queries("engine")["idle_paths"], after.tenant, after.name_h, after.path, limit
            )
        idle = [(row["tenant"], row["name_h"], row["path"]) for row in rows if row["idle"]]
        forgotten = 0
        if idle and await self._seen_by_all():
            async with self._database.connection() as connection:
                forgotten = await connection.fetchval(queries("engine")["forget_paths"], *zip(*idle, strict=True))
        last = rows[-1] if len(rows) == limit else None
        return forgotten, None if last is None else PathKey(last["tenant"], last["name_h"], last["path"])

    async def _seen_by_all(self) -> bool:
        """Whether everybody sees what is committed by now. It takes the end of the longest transaction, which may be
        too long: then it is for another time.
        """
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._horizon.until_passed(await self._horizon.of_now())
        except TimeoutError:
            return False
        return True
