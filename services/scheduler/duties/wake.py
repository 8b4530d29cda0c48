"""Fires timers: sleeps, backoffs, later starts, timeouts of waits (architecture section 5).

Sleeps to the next instant that its horizon knows and looks there. What a lost hint or a scheduler that just died has
missed, in whatever partition, the glance sees within a second: then it looks at all of them, whoever owns them. Never
early: the guard is in the statement. A timer whose hint was lost is at most that second late.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from services.core.bus.subjects import partition_of
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import Clock
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.core.store.queries import queries
from services.scheduler.duties.glance import AT_LATEST_S
from services.scheduler.duties.horizon import HORIZON_MS, MAX_INSTANTS, Horizon
from services.scheduler.partitions import EVERY_PARTITION, Partitions

BATCH = 500

_REFILL_S = 15.0
_SAMPLE_S = 5.0
_RETRY_S = (0.005, 0.25)
_GRACE_MS = 250
"""So late a timer is that an executor has set and was to fire itself, before the pass over everything takes it."""


class Wake:
    """The duty that turns due waits into ready runs."""

    name = "wake"

    def __init__(
        self,
        database: Database,
        partitions: Partitions,
        hints: Hints,
        clock: Clock,
        database_clock: DatabaseClock,
        traces: RunTraces | None = None,
    ) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._gates = Gates(database, hints)
        self._partitions = partitions
        self._hints = hints
        self._clock = clock
        self._theirs = database_clock
        self._horizon = Horizon()
        self._nearer = asyncio.Event()
        self._generation = -1
        self._refill_at = self._sweep_at = self._sample_at = clock.monotonic()
        self._busy: defaultdict[int, set[int]] = defaultdict(set)
        """Partitions in which runs were held by others, by the grace with which they were looked at."""
        self._retry_s = _RETRY_S[0]

    async def hinted(self, timers: Sequence[tuple[UUID, int]]) -> None:
        """Timers that just came to be: pairs of run and due time (unix ms)."""
        mine = set(self._partitions.mine())
        for run, due_ms in timers:
            part = partition_of(run)
            if part in mine and self._horizon.add(due_ms, part):
                self._nearer.set()

    def sweep(self) -> None:
        """Something is due: look at all partitions."""
        self._sweep_at = self._clock.monotonic()
        self._nearer.set()

    async def run_once(self) -> Mapping[str, int]:
        """Look where something may be due, fire it, and send the hints. Raises Unavailable."""
        await self._learn()
        busy, self._busy = self._busy, defaultdict(set)
        due = self._horizon.take_due(self._theirs.certain_ms()) | busy[0]
        late: Iterable[int] = busy[_GRACE_MS]
        now = self._clock.monotonic()
        fired = await self._fire(sorted(due)) if due else 0
        if now >= self._sweep_at:
            self._sweep_at = now + AT_LATEST_S
            late = EVERY_PARTITION
        if late:
            fired += await self._fire(sorted(late), grace_ms=_GRACE_MS)
        return {"fired": fired}

    async def idle(self) -> None:
        """Until the next known instant, a nearer one that is hinted, or something else that is due is seen."""
        self._nearer.clear()
        pause = min(self._sweep_at, self._sample_at, self._refill_at) - self._clock.monotonic()
        if self._busy:
            pause = min(pause, self._retry_s)
        if self._horizon.next_ms is not None:
            pause = min(pause, (self._horizon.next_ms - self._theirs.certain_ms()) / 1_000)
        if pause <= 0:
            return
        try:
            async with asyncio.timeout(pause):
                await self._nearer.wait()
        except TimeoutError:
            return

    async def _fire(self, parts: list[int], *, grace_ms: int = 0) -> int:
        total = 0
        while True:
            async with self._database.connection() as connection:
                row = await connection.fetchrow(
                    queries("scheduler")["fire"], parts, BATCH, self._traces.enabled, grace_ms
                )
            assert row is not None
            fired: int = row["fired"]
            tenants = dict(zip(row["runs"], row["tenants"], strict=True))
            total += fired
            self._traces.meter.fired(row["late_ms"])
            self._hints.ready(ready(row["runs"], row["owners"]))
            self._hints.delivered(zip(row["runs"], row["owners"], strict=True))
            await self._gates.grant(zip(row["ga"], row["gb"], strict=True))
            self._traces.lost((tenants[run], run) for run in row["lost"])
            self._traces.ended("failed", [(tenants[run], run) for run in row["ended"]])
            self._traces.delivered(zip(row["tenants"], row["runs"], row["resolved"], strict=True))
            if not row["more"]:
                self._retry_s = _RETRY_S[0]
                return total
            if fired == 0:  # the runs are held by transactions of others, for a moment
                self._busy[grace_ms].update(parts)
                self._retry_s = min(self._retry_s * 2, _RETRY_S[1])
                return total

    async def _learn(self) -> None:
        """Read the horizon when it is due, or the share of partitions has changed; sample the database's clock."""
        now = self._clock.monotonic()
        generation = self._partitions.generation
        if now < self._sample_at and now < self._refill_at and generation == self._generation:
            return
        async with self._database.connection() as connection:
            await self._theirs.sample(connection)
            self._sample_at = now + _SAMPLE_S
            if now < self._refill_at and generation == self._generation:
                return
            until_ms = self._theirs.unix_ms() + HORIZON_MS
            parts = list(self._partitions.mine())
            rows = await connection.fetch(queries("scheduler")["upcoming"], parts, int(until_ms), MAX_INSTANTS)
        if len(rows) == MAX_INSTANTS:
            until_ms = rows[-1]["due_ms"]
        self._horizon.replace(((row["due_ms"], row["part"]) for row in rows), until_ms)
        self._generation = generation
        # Before what was read runs out: a crowded horizon is shorter than a minute.
        left_s = (until_ms - self._theirs.unix_ms()) / 1_000
        self._refill_at = self._clock.monotonic() + max(0.5, min(_REFILL_S, left_s / 2))


def ready(runs: Sequence[UUID], owners: Sequence[int | None]) -> list[UUID]:
    """Of runs that got something, those that nobody holds: their holder will see it by itself."""
    return [run for run, owner in zip(runs, owners, strict=True) if owner is None]
