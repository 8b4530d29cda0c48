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

_Pending = tuple[Lease, str | None, asyncio.Future[bool]]


class Affinities:
    """Writes sessions down for one owner."""

    def __init__(self, database: Database, owner: int) -> None:
        self._database = database
        self._owner = owner
        self._pending: list[_Pending] = []
        self._writing: asyncio.Task[None] | None = None

    async def assign(self, lease: Lease, session: str | None) -> bool:
        """From now on this session executes the run; None: none does. False: the lease is lost. Raises Unavailable.

        Nothing is asked where it says so already.
        """
        return lease.affinity == session or await self._ask(lease, session)

    async def confirm(self, lease: Lease) -> bool:
        """Whether the lease is held yet. Raises Unavailable."""
        return await self._ask(lease, lease.affinity)

    async def _ask(self, lease: Lease, session: str | None) -> bool:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.append((lease, session, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="affinities")
        is_held = await done
        lease.affinity = session
        return is_held

    async def _write_all(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                held = await self._write(batch)
            except Exception as error:
                for _, _, done in batch:
                    if not done.done():
                        done.set_exception(error)
            else:
                for lease, _, done in batch:
                    if not done.done():
                        done.set_result((lease.run, lease.epoch) in held)

    async def _write(self, batch: Sequence[_Pending]) -> set[tuple[UUID, int]]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                queries("executor")["assign"],
                self._owner,
                [lease.run for lease, _, _ in batch],
                [lease.epoch for lease, _, _ in batch],
                [None if session is None else UUID(session) for _, session, _ in batch],
            )
        return {(row["run"], row["epoch"]) for row in rows}
