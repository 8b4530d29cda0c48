"""Runs that wait for an event, for another run or for a moment, as this process let go of them: one that is resumed is
claimed by what is remembered of it, in a statement that brings the result of the wait, and is not read.

That is no lease (see `asleep`). The statement takes the run only where nothing but the delivery has happened to it;
any other is claimed as all are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from services.core.engine.definitions import DefinitionsCache
from services.core.store.queries import tenant_query
from services.executor.arriving import Tenure
from services.executor.asleep import Asleep
from services.executor.lease import Lease
from services.executor.worker_stream.pool_claims import PoolClaims

_KEPT_BYTES = 48 * 1024 * 1024


class Remembered:
    """What is remembered of runs that wait, the newest of them."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._by_run: dict[UUID, Asleep] = {}

    def keep(self, asleep: Asleep) -> None:
        """Remember it, and forget the oldest where that is too much."""
        self.take(asleep.run)
        self._by_run[asleep.run] = asleep
        self._bytes += asleep.size
        while self._bytes > self._most_bytes:
            self.take(next(iter(self._by_run)))

    def of(self, runs: Iterable[UUID]) -> Iterator[Asleep]:
        """What is remembered of these."""
        return (asleep for run in runs if (asleep := self._by_run.get(run)) is not None)

    def take(self, run: UUID) -> Asleep | None:
        """Remember it no more; what was."""
        asleep = self._by_run.pop(run, None)
        if asleep is not None:
            self._bytes -= asleep.size
        return asleep


class Resumed(NamedTuple):
    """Runs that were claimed by what was remembered: leases of those that go on, and those that must be read yet."""

    leases: list[Lease]
    unread: list[UUID]

    @property
    def runs(self) -> set[UUID]:
        """All of them."""
        return {lease.run for lease in self.leases}.union(self.unread)


class RememberedClaims:
    """Claims what is remembered, for one owner."""

    def __init__(self, remembered: Remembered, definitions: DefinitionsCache, pools: PoolClaims, *, owner: int) -> None:
        self._remembered = remembered
        self._definitions = definitions
        self._pools = pools
        self._owner = owner

    def tenures(self, runs: Iterable[UUID]) -> list[Tenure]:
        """How those of these runs would be held that may be claimed here."""
        return [(asleep.run, asleep.resumed_epoch) for asleep in self._remembered.of(runs)]

    async def claim(
        self,
        connection: asyncpg.Connection,
        runs: Sequence[UUID],
        *,
        room: int,
        most_of: Callable[[int], int],
        most_bytes: int,
    ) -> Resumed:
        """Claim at most `room` of these runs; `most_of` tells how many of a tenant. The results that come with them
        have `most_bytes` each.
        """
        resumed = Resumed([], [])
        for tenant, theirs in self._chosen(runs, room, most_of).items():
            await self._claim(connection, tenant, theirs, most_bytes, resumed)
        return resumed

    def _chosen(
        self, runs: Sequence[UUID], room: int, most_of: Callable[[int], int]
    ) -> dict[int, list[tuple[Asleep, str | None]]]:
        """Those that may be claimed, by tenant, each with the session of the worker that it is meant for."""
        chosen: dict[int, list[tuple[Asleep, str | None]]] = {}
        meant: Counter[str] = Counter()
        for asleep in self._remembered.of(dict.fromkeys(runs)):
            theirs = chosen.setdefault(asleep.tenant, [])
            if room <= 0 or len(theirs) >= most_of(asleep.tenant):
                continue
            session = None
            if asleep.by_workers:
                session = self._pools.place(asleep.workflow, meant)
                if session is None:
                    continue
                meant[session] += 1
            theirs.append((asleep, session))
            room -= 1
        return {tenant: theirs for tenant, theirs in chosen.items() if theirs}

    async def _claim(
        self,
        connection: asyncpg.Connection,
        tenant: int,
        chosen: Sequence[tuple[Asleep, str | None]],
        most_bytes: int,
        resumed: Resumed,
    ) -> None:
        for asleep, _ in chosen:
            self._remembered.take(asleep.run)
        fences = [(*asleep.resumed_fence, session) for asleep, session in chosen]
        is_one = len(fences) == 1
        query = tenant_query("executor", "claim_remembered_one" if is_one else "claim_remembered", tenant)
        values = fences[0] if is_one else map(list, zip(*fences, strict=True))
        rows = await connection.fetch(query, self._owner, tenant, *values, most_bytes)
        if not rows:
            return
        known = await self._definitions.at(connection, tenant, rows[0]["version"])
        by_run = {asleep.run: (asleep, session) for asleep, session in chosen}
        for row in rows:
            asleep, session = by_run[row["id"]]
            lease = asleep.resumed(row, session)
            if lease is not None and lease.follow(known):
                resumed.leases.append(lease)
            else:
                resumed.unread.append(asleep.run)
