"""Take runs: those that hints name, and, with room to spare, the oldest ready ones of every tenant in turn.

A hint only says where to look; the row decides. Without hints (NATS away, a hint lost) the looks alone keep everything
moving. Where there is more than one tenant, none takes more than its share of the slots (`fair_share`), by hints or by
looks; a look that finds tenants which are short of theirs asks others to make room.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.engine.definitions import DefinitionsCache
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from services.executor.arriving import Arriving
from services.executor.fair_share import Turns, more, shares
from services.executor.lease import Lease
from services.executor.load import load_leases
from services.executor.remembered import Remembered, RememberedClaims
from services.executor.slots import Slots
from services.executor.spans import ExecutorSpans
from services.executor.wake_limit import wake_limit
from services.executor.woken import Woken
from services.executor.worker_stream.pool_claims import PoolClaims

log = logging.getLogger(__name__)

_BATCH = 256
_ENOUGH_HINTED = 256
_MOST_HINTED = 4_096
"""Many times what one pull of hints can bring. What is beyond it is found by looks."""
_LOOK_AGAIN_S = 0.02
_WHOLE_RUN_BYTES = 16 * 1024
_WHOLE_BYTES = 256 * 1024
_READ_RUNS = 64
_READ_BYTES = 8 * 1024 * 1024
"""What is read of claimed runs at once; those that are read go on while the others are."""
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
        slots: Slots,
        room: Callable[[], int],
        accept: Callable[[Lease], object],
        spans: ExecutorSpans,
        pools: PoolClaims,
        arriving: Arriving,
    ) -> None:
        """`room` tells how many of the free slots may be used now: none while the process drains or is silent."""
        self._database = database
        self._definitions = definitions
        self._owner = owner
        self._slots = slots
        self._room = room
        self._accept = accept
        self._spans = spans
        self._hinted: deque[UUID] = deque(maxlen=_MOST_HINTED)
        self.wants_hints: Callable[[], None] = lambda: None
        """Called when it has not enough hints any more."""
        self._wake = asyncio.Event()
        self._one_by_one = asyncio.Lock()  # two at once would each take all the room, or a tenant's share twice
        self._coming = 0  # kept for what is being claimed and read
        self._turns = Turns()
        self._arriving = arriving
        self._pools = pools
        pools.tell(self._wake.set)
        self.remembered = Remembered()
        self._by_memory = RememberedClaims(self.remembered, definitions, pools, owner=owner)
        self._shared = False
        self._tenant: int | None = None
        self._more_waits = False
        self._next_look = 0.0
        self._looked = 0.0
        self._pause = _LOOK_SOON_S

    def hint(self, runs: Iterable[UUID]) -> None:
        """Somebody says that these runs are ready."""
        self._hinted.extend(runs)
        self._wake.set()

    @property
    def has_enough(self) -> bool:
        """Whether more hints would only lie here: in the stream they are there for others, and counted."""
        return len(self._hinted) >= _ENOUGH_HINTED

    def has_room(self) -> None:
        """A held run ended: there may be room for another."""
        if self._more_waits and not self._hinted:
            self._next_look = min(self._next_look, self._looked + _LOOK_AGAIN_S)
        if self._more_waits or self._hinted or self._pools.wanted:
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
        loop = asyncio.get_running_loop()
        self._next_look = loop.time()
        while True:
            try:
                async with asyncio.timeout(max(0.0, self._next_look - loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                while self._hinted and self._free() > 0 and loop.time() < self._next_look:
                    await self._claim_hinted()
                while self._pools.wanted and self._free() > 0 and await self._claim_pooled():
                    pass
                if loop.time() >= self._next_look:
                    self._looked = loop.time()
                    found = await self._look()
                    self._pause = _LOOK_SOON_S if found else min(self._pause * 1.5, _LOOK_LATE_S)
                    self._next_look = loop.time() + (0.0 if found and self._free() > 0 else self._pause)
            except Unavailable:
                log.warning("cannot claim: the database is away")
                self._next_look = loop.time() + _LOOK_LATE_S
                await asyncio.sleep(_LOOK_SOON_S)
            if self._hinted and self._free() > 0:
                self._wake.set()  # the look came first

    @property
    def may_wake_ahead(self) -> bool:
        """Whether `wake` may be asked for timers that are not due yet. Where tenants share the room none is kept for
        them meanwhile.
        """
        return not self._shared

    async def wake(self, waits: Sequence[UUID], *, ahead_ms: int, traced: bool) -> Woken:
        """Fire these timers, and take those of the runs that there is room for: what is due within `ahead_ms` is
        prepared now and is done when the last of it is due. Raises Unavailable.
        """
        async with self._database.connection() as connection, AsyncExitStack() as alone:
            if self._shared or self._free() < len(waits):
                await alone.enter_async_context(self._one_by_one)  # who claims now may leave more room
            begun_ns = self._spans.now_ns()
            room = max(0, min(self._free(), len(waits), _BATCH))
            shares = self._shares() if self._shared else (None, None, None)
            with self._kept(room):
                if not self._shared:
                    await alone.aclose()  # others may claim meanwhile
                with wake_limit(self._database, connection, ahead_ms):
                    rows: Sequence[asyncpg.Record] = await connection.fetch(
                        queries("executor")["wake"], self._owner, waits, ahead_ms, traced, room, *shares
                    )
                woken = Woken.of(rows)
                runs = self._go_on([run for run in woken.runs if not run["pooled"]], woken.gone(waits), begun_ns)
                await self._take(connection, runs, begun_ns, found_by="timer")
                pooled = await self._claim_woken(connection, woken, room, begun_ns)
        if len(woken.runs) < room:
            self.has_room()
        self._pools.seen(pooled)
        return woken

    async def _claim_woken(
        self, connection: asyncpg.Connection, woken: Woken, room: int, begun_ns: int
    ) -> Sequence[asyncpg.Record]:
        """Claim those of these runs that only workers serve, by what is remembered of them; the rest of them. `room`:
        for how many runs there was any, with those that are taken already.
        """
        pooled = [run for run in woken.runs if run["pooled"]]
        room -= len(woken.runs) - len(pooled)
        runs = [UUID(int=run["id"].int) for run in pooled]
        resumed = await self._claim_remembered(connection, runs, room, begun_ns, found_by="timer")
        return [run for run in pooled if run["id"] not in resumed]

    def _go_on(self, rows: Sequence[asyncpg.Record], gone: Collection[UUID], begun_ns: int) -> Sequence[asyncpg.Record]:
        """Hand out the leases of those of which all is known, with the waits that are gone; the others."""
        unread = []
        for row in rows:
            remembered = self.remembered.take(row["id"])
            lease = None if remembered is None else remembered.woken(row, gone)
            if lease is None:
                unread.append(row)
                continue
            self._spans.claimed(lease, begun_ns, found_by="timer")
            self._accept(lease)
        return unread

    def _free(self) -> int:
        """How many runs there is room for, beside what is kept for claims that are under way."""
        return self._room() - self._coming

    @contextmanager
    def _kept(self, room: int) -> Iterator[None]:
        """Keep room for a claim until what it has taken is held."""
        self._coming += room
        try:
            with self._arriving.asking():
                yield
        finally:
            self._coming -= room

    async def _claim_hinted(self) -> None:
        async with self._one_by_one:
            await self._claim_next()

    async def _claim_next(self) -> None:
        room = min(self._free(), _BATCH)
        # Where tenants share, many of these runs may be of one that has its share: others must not stand behind them.
        had_enough = self.has_enough
        runs = [self._hinted.popleft() for _ in range(min(_BATCH if self._shared else room, len(self._hinted)))]
        if had_enough and not self.has_enough:
            self.wants_hints()
        with self._kept(min(room, len(runs))):
            await self._claim_named(runs, room)

    async def _claim_named(self, runs: Sequence[UUID], room: int) -> None:
        async with self._database.connection() as connection:
            begun_ns = self._spans.now_ns()
            resumed = await self._claim_remembered(connection, runs, room, begun_ns, found_by="hint")
            if resumed:
                room -= len(resumed)
                runs = [run for run in runs if run not in resumed]
            rows: Sequence[asyncpg.Record] = []
            if self._shared and runs:
                rows = await self._claim_fairly(connection, runs, room)
                self._more_waits |= len(rows) < len(runs)
            elif runs:
                rows = await self._claim_whole(connection, runs, room)
            await self._take(connection, [row for row in rows if not row["pooled"]], begun_ns, found_by="hint")
        self._pools.seen([row for row in rows if row["pooled"]])

    async def _claim_remembered(
        self, connection: asyncpg.Connection, runs: Sequence[UUID], room: int, begun_ns: int, *, found_by: str
    ) -> Collection[UUID]:
        """Claim those of which all is known but what they waited for; which they are."""
        tenures = self._by_memory.tenures(runs)
        if not tenures:
            return ()
        most_of = self._most_of() if self._shared else lambda _: room
        with self._arriving.reading(tenures):
            resumed = await self._by_memory.claim(
                connection, runs, room=room, most_of=most_of, most_bytes=whole_bytes(len(runs))
            )
            for lease in resumed.leases:
                self._spans.claimed(lease, begun_ns, found_by=found_by)
                self._accept(lease)
            if resumed.unread:
                rows = await connection.fetch(queries("executor")["taken_over"], self._owner, resumed.unread)
                await self._take(connection, rows, begun_ns, found_by=found_by)
        return resumed.runs

    async def _claim_whole(
        self, connection: asyncpg.Connection, runs: Sequence[UUID], room: int
    ) -> Sequence[asyncpg.Record]:
        """Claim, and read what is stored of them with it: there is one tenant, so it is that of the last ones."""
        tenant = self._tenant
        query = (
            queries("executor")["claim_hinted"]
            if tenant is None
            else tenant_query("executor", "claim_and_load", tenant)
        )
        whole = () if tenant is None else (tenant, whole_bytes(len(runs)))
        rows: Sequence[asyncpg.Record] = await connection.fetch(query, self._owner, runs, room, *whole)
        return rows

    async def _claim_pooled(self, *, everywhere: bool = False) -> bool:
        """Claim for workers that have room; whether anything was there."""
        async with self._one_by_one, self._database.connection() as connection:
            begun_ns = self._spans.now_ns()
            room = min(self._free(), _BATCH)
            most = self._most_of() if self._shared else None
            with self._kept(max(0, room)):
                rows = await self._pools.claim(connection, self._owner, room, most=most, everywhere=everywhere)
                await self._take(connection, rows, begun_ns, found_by="look" if everywhere else "hint")
        await asyncio.sleep(0)  # what was accepted begins, and spends its credits, before the next claim counts them
        return bool(rows)

    def _most_of(self) -> Callable[[int], int]:
        held, free = self._slots.held, self._slots.free
        return lambda tenant: more(held.get(tenant, 0), free)

    async def _claim_fairly(
        self, connection: asyncpg.Connection, runs: Sequence[UUID], room: int
    ) -> Sequence[asyncpg.Record]:
        rows: Sequence[asyncpg.Record] = await connection.fetch(
            queries("executor")["claim_hinted_fair"], self._owner, runs, *self._shares(), room
        )
        return rows

    def _shares(self) -> tuple[list[int], list[int], int]:
        """Tenants that hold runs, how many more each may take, and how many one that holds none may."""
        held, free = self._slots.held, self._slots.free
        return list(held), [more(count, free) for count in held.values()], more(0, free)

    async def _look(self) -> bool:
        """Claim without hints; whether anything was there."""
        found = await self._claim_pooled(everywhere=True) if self._free() > 0 else False
        return await self._look_around() or found

    async def _look_around(self) -> bool:
        """Claim what anybody may take. Who holds least comes first, and equals take turns."""
        async with self._one_by_one, self._database.connection() as connection:
            seen = await connection.fetchrow(queries("executor")["look"])
            self._shared = self._shared or seen["shared"]
            waiting = self._turns.order(seen["waiting"])
            room = min(self._free(), _BATCH)
            if room <= 0 and not self._shared:
                return False
            quota = self._quota(waiting, room)
            rows: Sequence[asyncpg.Record] = []
            found = False
            if quota:
                begun_ns = self._spans.now_ns()
                with self._kept(max(0, room)):
                    rows = await connection.fetch(
                        queries("executor")["claim_oldest"], self._owner, list(quota), list(quota.values()), room
                    )
                    found = await self._take(connection, rows, begun_ns, found_by="look")
        taken = Counter(row["tenant"] for row in rows)
        self._turns.served(taken)
        short = {tenant for tenant in waiting if taken[tenant] >= quota.get(tenant, 0)}
        self._more_waits = bool(short)
        if self._shared and (room > 0 or self._slots.free <= 0):
            self._slots.make_room(short | self._pools.waiting)
        return found

    def _quota(self, waiting: Sequence[int], room: int) -> dict[int, int]:
        if room <= 0:
            return {}
        if not self._shared:
            return dict.fromkeys(waiting, room)
        return shares(self._slots.held, waiting, self._slots.free, room)

    async def _take(
        self, connection: asyncpg.Connection, rows: Sequence[asyncpg.Record], begun_ns: int, *, found_by: str
    ) -> bool:
        """Whether there was one that can be driven."""
        if not rows:
            return False
        self._tenant = rows[-1]["tenant"]
        early: list[Lease] = []
        accepted = False
        for row in rows:
            self.remembered.take(row["id"])
        with self._arriving.reading((UUID(int=row["id"].int), row["epoch"]) for row in rows):
            for piece in _pieces(rows):
                for lease in await load_leases(connection, self._definitions, piece):
                    if lease.unnamed:
                        early.append(lease)
                        continue
                    self._spans.claimed(lease, begun_ns, found_by=found_by)
                    self._accept(lease)
                    accepted = True
        if early:
            # What they have sent is being accepted by another, or was by one that died: a look finds them again.
            runs, epochs = [each.run for each in early], [each.epoch for each in early]
            await connection.fetch(queries("executor")["let_go"], self._owner, runs, epochs, False)
        return accepted


def whole_bytes(runs: int) -> int:
    """How many bytes of memory, and how many of event, are read of each of so many runs in the statement that claims
    them: until its answer is taken, it holds their rows (rulings C11).
    """
    return min(_WHOLE_RUN_BYTES, _WHOLE_BYTES // max(1, runs))


def _pieces(rows: Sequence[asyncpg.Record]) -> Iterator[Sequence[asyncpg.Record]]:
    """Claimed rows, as many at a time as may be read at once."""
    begin = size = 0
    for place, row in enumerate(rows):
        if place > begin and (size + row["bytes"] > _READ_BYTES or place - begin >= _READ_RUNS):
            yield rows[begin:place]
            begin, size = place, 0
        size += row["bytes"]
    yield rows[begin:]
