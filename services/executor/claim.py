"""Take runs: those that hints name, and, with room to spare, the oldest ready ones of every tenant in turn.

A hint only says where to look; the row decides. Without hints (NATS away, a hint lost) the looks alone keep everything
moving.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.engine.definitions import DefinitionsCache
from services.core.store.database import Database
from services.core.store.queries import queries
from services.executor.lease import Lease
from services.executor.load import load_leases
from services.executor.spans import ExecutorSpans
from services.executor.worker_stream.pool_claims import PoolClaims

log = logging.getLogger(__name__)

_BATCH = 256
_LOOK_SOON_S = 0.25
_LOOK_LATE_S = 1.0


class Claimer:
    """Claims runs for one owner and hands their leases to `accept`."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        *,
        owner: int,
        room: Callable[[], int],
        accept: Callable[[Lease], object],
        spans: ExecutorSpans,
        pools: PoolClaims,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._owner = owner
        self._room = room
        self._accept = accept
        self._spans = spans
        self._hinted: deque[UUID] = deque(maxlen=65_536)
        self._wake = asyncio.Event()
        self._turn = 0
        self._pools = pools
        pools.tell(self._wake.set)

    def hint(self, runs: Iterable[UUID]) -> None:
        """Somebody says that these runs are ready."""
        self._hinted.extend(runs)
        self._wake.set()

    def has_room(self) -> None:
        """A held run ended: there may be room for another."""
        if self._hinted or self._pools.wanted:
            self._wake.set()

    def given_back(self, lease: Lease) -> None:
        """A held run is in the queue again: one that only workers serve is looked for by whoever has one."""
        if lease.project.by_workers:
            self._pools.given_back(lease.entry.id)

    def pooled(self, workflows: Iterable[int]) -> None:
        """Somebody says that these workflows, which only workers serve, have runs in the queue."""
        self._pools.came(workflows)

    async def run(self) -> None:
        """Claim until cancelled."""
        pause = _LOOK_SOON_S
        loop = asyncio.get_running_loop()
        next_look = loop.time()
        while True:
            try:
                async with asyncio.timeout(max(0.0, next_look - loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                while self._hinted and self._room() > 0:
                    await self._claim_hinted()
                while self._pools.wanted and self._room() > 0:
                    await self._claim_pooled()
                if loop.time() >= next_look:
                    found = await self._look()
                    pause = _LOOK_SOON_S if found else min(pause * 1.5, _LOOK_LATE_S)
                    next_look = loop.time() + (0.0 if found and self._room() > 0 else pause)
            except Unavailable:
                log.warning("cannot claim: the database is away")
                next_look = loop.time() + _LOOK_LATE_S
                await asyncio.sleep(_LOOK_SOON_S)

    async def _claim_hinted(self) -> None:
        room = min(self._room(), _BATCH)
        runs = [self._hinted.popleft() for _ in range(min(room, len(self._hinted)))]
        async with self._database.connection() as connection:
            begun_ns = self._spans.now_ns()
            rows = await connection.fetch(queries("executor")["claim_hinted"], self._owner, runs, room)
            await self._take(connection, [row for row in rows if not row["pooled"]], begun_ns, found_by="hint")
        self._pools.seen([row for row in rows if row["pooled"]])

    async def _claim_pooled(self, *, everywhere: bool = False) -> bool:
        """Claim for workers that have room; whether anything was there."""
        async with self._database.connection() as connection:
            begun_ns = self._spans.now_ns()
            rows = await self._pools.claim(connection, self._owner, min(self._room(), _BATCH), everywhere=everywhere)
            await self._take(connection, rows, begun_ns, found_by="look" if everywhere else "hint")
        await asyncio.sleep(0)  # what was accepted begins, and spends its credits, before the next claim counts them
        return bool(rows)

    async def _look(self) -> bool:
        """Claim without hints; whether anything was there. Tenants take turns, and none gets more than its share."""
        if self._room() <= 0:
            return False
        found = await self._claim_pooled(everywhere=True)
        return await self._look_around() or found

    async def _look_around(self) -> bool:
        room = min(self._room(), _BATCH)
        if room <= 0:
            return False
        async with self._database.connection() as connection:
            tenants = [row[0] for row in await connection.fetch(queries("executor")["ready_tenants"])]
            if not tenants:
                return False
            self._turn = (self._turn + 1) % len(tenants)
            tenants = tenants[self._turn :] + tenants[: self._turn]
            quota = max(1, room // len(tenants))
            begun_ns = self._spans.now_ns()
            rows = await connection.fetch(
                queries("executor")["claim_oldest"], self._owner, tenants, [quota] * len(tenants), room
            )
            await self._take(connection, rows, begun_ns, found_by="look")
        return bool(rows)

    async def _take(
        self, connection: asyncpg.Connection, rows: Sequence[asyncpg.Record], begun_ns: int, *, found_by: str
    ) -> None:
        if not rows:
            return
        early: list[UUID] = []
        for lease in await load_leases(connection, self._definitions, rows):
            if lease.unnamed:
                early.append(lease.run)
                continue
            self._spans.claimed(lease, begun_ns, found_by=found_by)
            self._accept(lease)
        if early:
            # What they have sent is being accepted by another, or was by one that died: a look finds them again.
            await connection.fetch(queries("executor")["let_go"], self._owner, early)
