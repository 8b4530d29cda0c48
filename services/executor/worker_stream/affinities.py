"""Which session executes a held run, in the database: whoever recovers the run keeps it for that worker (rulings S2).

Written before the worker is given the run, for all that begin while the statement before is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from services.core.store.database import Database
from services.core.store.queries import queries
from services.executor.lease import Lease

_Pending = tuple[Lease, str | None, asyncio.Future[None]]


class Affinities:
    """Writes sessions down for one owner."""

    def __init__(self, database: Database, owner: int) -> None:
        self._database = database
        self._owner = owner
        self._pending: list[_Pending] = []
        self._writing: asyncio.Task[None] | None = None

    async def assign(self, lease: Lease, session: str | None) -> None:
        """From now on this session executes the run; None: none does. Raises Unavailable.

        Nothing happens where it says so already, or where the lease is lost.
        """
        if lease.affinity == session:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((lease, session, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="affinities")
        await done
        lease.affinity = session

    async def _write_all(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                await self._write(batch)
            except Exception as error:
                for _, _, done in batch:
                    if not done.done():
                        done.set_exception(error)
            else:
                for _, _, done in batch:
                    if not done.done():
                        done.set_result(None)

    async def _write(self, batch: Sequence[_Pending]) -> None:
        async with self._database.connection() as connection:
            await connection.execute(
                queries("executor")["assign"],
                self._owner,
                [lease.run for lease, _, _ in batch],
                [lease.epoch for lease, _, _ in batch],
                [None if session is None else UUID(session) for _, session, _ in batch],
            )
