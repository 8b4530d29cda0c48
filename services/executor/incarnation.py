"""One life of an executor as an owner of runs: from the moment its owner row exists until it leaves, or is declared
dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from services.core.domain.errors import Unavailable
from services.core.engine.hints import Hints
from services.core.engine.regate import Regater
from services.core.store.database import Database
from services.core.store.pipeline import Pipeline
from services.core.store.queries import queries
from services.executor.aftermath import Aftermath
from services.executor.arriving import Arriving, Tenure
from services.executor.claim import Claimer
from services.executor.lease import Lease
from services.executor.own_timers import OwnTimers
from services.executor.owner import Owner
from services.executor.slots import Slots
from services.executor.worker_stream.adoption import Adoption
from services.executor.worker_stream.session import Brought, WorkerSession

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.5


class Drives(Protocol):
    """What drives a held run."""

    async def drive(self, lease: Lease) -> bool:
        """Drive the run until it rests or ends (True), or may not go on here and is still held (False)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A lease in memory, and who drives it."""

    lease: Lease
    task: asyncio.Task[None]


class Incarnation:
    """Holds runs: claims them, drives each in its own task, lets go of them."""

    def __init__(
        self,
        *,
        owner: Owner,
        pipeline: Pipeline,
        aftermath: Aftermath,
        database: Database,
        regater: Regater,
        slots: Slots,
        hints: Hints,
        adoption: Adoption,
        arriving: Arriving,
        part: Callable[[], None],
        park_s: float,
        make_timers: Callable[[Claimer], OwnTimers],
        make_claimer: Callable[[Callable[[], int], Callable[[Lease], object]], Claimer],
        make_driver: Callable[[Callable[[], bool]], Drives],
    ) -> None:
        """`part` tells workers that their runs are not held here any more; `park_s`: for how long what they execute is
        kept for them when this process stops.
        """
        self.owner = owner
        self._hints = hints
        self._adoption = adoption
        self._arriving = arriving
        arriving.in_doubt = owner.look_soon
        self._part = part
        self._park_ms = round(park_s * 1_000)
        self._over = False
        self._pipeline = pipeline
        self._aftermath = aftermath
        self._database = database
        self._regater = regater
        self._slots = slots
        self._held: dict[UUID, _Held] = {}
        self._doubts: set[asyncio.Task[None]] = set()
        self._claimer = make_claimer(self._room, self._accept)
        self._timers = make_timers(self._claimer)
        aftermath.keep_timer = self._timers.keep
        aftermath.remember = self._claimer.remembered.keep
        self._driver = make_driver(self._may_go_on)
        self._draining = False
        self._freed = asyncio.Event()
        self._claimer.wants_hints = self._freed.set

    @property
    def held(self) -> Collection[UUID]:
        """The runs in memory."""
        return self._held.keys()

    def hint(self, runs: Iterable[UUID]) -> None:
        """These runs may be ready."""
        if not self._draining:
            self._claimer.hint(runs)

    def pooled(self, workflows: Iterable[int]) -> None:
        """These workflows, which only workers serve, may have runs in the queue."""
        if not self._draining:
            self._claimer.pooled(workflows)

    def mailed(self, runs: Iterable[UUID]) -> None:
        """Somebody says that something was delivered to these runs of ours: a worker that executes one is told."""
        for run in runs:
            held = self._held.get(run)
            if held is not None and held.lease.under_way is not None:
                held.lease.under_way.mailed()

    def abandon(self, runs: Iterable[UUID]) -> asyncio.Task[None]:
        """Somebody says that these runs are not ours any more: stop the invocations of those that are not.

        A hint only says where to look. One that comes late may speak of a lease before the one that is held now. The
        answer is the look, which nobody needs to wait for.
        """
        doubt = asyncio.create_task(self._stop_lost([run for run in runs if run in self._held]))
        self._doubts.add(doubt)
        doubt.add_done_callback(self._doubts.discard)
        return doubt

    async def run(self) -> None:
        """Hold runs until cancelled. Raises OwnerLost when this owner is dead to the others."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pipeline.run(), name="pipeline")
                group.create_task(self._aftermath.run(), name="aftermath")
                group.create_task(self._claimer.run(), name="claimer")
                group.create_task(self._timers.run(), name="timers")
                group.create_task(self.owner.keep(self._known, self._under_way, self.abandon), name="heartbeat")
        finally:
            self._end()

    async def drain(self) -> None:
        """Take no more runs, let those in a step end it, give them back without an attempt (rulings O8)."""
        self._draining = True
        self._timers.hand_over()
        self._freed.set()
        while self._held:
            self._freed.clear()
            await self._freed.wait()

    async def leave(self) -> None:
        """Give back whatever is still held, without an attempt (rulings O8), then stop existing."""
        self._end()
        try:
            # The database knows best: runs whose tasks were cancelled before this are in no memory any more.
            async with self._database.connection() as connection:
                rows = await connection.fetch(queries("executor")["leave"], self.owner.id, self._park_ms)
            for row in rows:
                self._hints.timers(row["run"], row["due_ms"])
        except Unavailable:
            log.warning("what is still held is left to be recovered: the database is away")
        await self.owner.leave()

    def _end(self) -> None:
        """Hold nothing any more. A worker that is told of a cancellation drops what it has: so they are left first."""
        self._over = True
        self._timers.hand_over()
        self._part()
        for task in (*(held.task for held in self._held.values()), *self._doubts):
            task.cancel()

    async def wait_for_room(self) -> int:
        """How many more runs may be held; waits until it is at least one and hints at more are wanted, or until this
        life drains.
        """
        while (self._room() < 1 or self._claimer.has_enough) and not self._draining:
            self._freed.clear()
            with contextlib.suppress(TimeoutError):  # room also comes back with a heartbeat, which frees no run
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await self._freed.wait()
        return self._room()

    def _known(self) -> set[Tenure]:
        return {(run, held.lease.epoch) for run, held in self._held.items()}.union(self._arriving)

    def _under_way(self) -> Collection[object]:
        return self._arriving.under_way

    def _room(self) -> int:
        return 0 if self._draining or self._over or not self.owner.may_invoke else self._slots.free

    def _may_go_on(self) -> bool:
        return not self._draining and self.owner.may_invoke

    async def adopt(self, session: WorkerSession, items: Sequence[Brought]) -> None:
        """Take over what a worker brings along from another executor, and answer it about each item."""
        await self._adoption.take_over(session, items, self._held.keys(), self._accept)

    def _accept(self, lease: Lease) -> bool:
        """Hold it; False when this life is over, or the lease was let go meanwhile: the run is left to be recovered."""
        if self._over or self.owner.has_let_go((lease.run, lease.epoch)):
            return False
        before = self._held.get(lease.run)
        if before is not None:
            before.task.cancel()  # it was taken from us and has come back: what the earlier lease still does is fenced
        self._slots.take(lease)
        self._held[lease.run] = _Held(lease, asyncio.create_task(self._hold(lease), name=f"run {lease.run_text}"))
        return True

    async def _hold(self, lease: Lease) -> None:
        try:
            if not await self._driver.drive(lease):
                await self._give_back(lease)
        except Unavailable:
            log.warning("run %s is left to be recovered", lease.run)
            self.owner.look_soon()
        except Exception:
            # A fault of the engine itself: give the run back rather than hold it for ever; it is seen in the log and
            # the run.
            log.exception("driving run %s failed", lease.run)
            await asyncio.sleep(1)
            await self._leave(lease)
        finally:
            self._slots.give_back(lease)
            held = self._held.get(lease.run)
            if held is not None and held.lease is lease:
                del self._held[lease.run]
            self._claimer.has_room()
            self._freed.set()

    async def _stop_lost(self, runs: list[UUID]) -> None:
        doubted = [self._held[run] for run in runs if run in self._held]
        if not doubted:
            return
        try:
            async with self._database.connection() as connection:
                rows = await connection.fetch(queries("executor")["leases"], self.owner.id, runs)
        except Unavailable:
            return  # their late answers will be fenced anyway
        ours = {(row["id"], row["epoch"]) for row in rows}
        for held in doubted:
            if (held.lease.run, held.lease.epoch) not in ours:
                held.task.cancel()

    async def _leave(self, lease: Lease) -> None:
        """Give it back in the middle of something. What a worker may have executed of it is an attempt, unless it says
        that it has not.
        """
        async with self._database.connection() as connection:
            await connection.fetch(queries("executor")["leave_some"], self.owner.id, [lease.run], [lease.epoch])
        self._claimer.given_back(lease)

    async def _give_back(self, lease: Lease) -> None:
        lost = [lease.run], [lease.epoch], [lease.project.id]
        async with self._database.connection() as connection:
            await connection.fetch(queries("executor")["settle_pool"], self.owner.id, *lost)
        if lease.outdated:
            await self._regater.move(lease.tenant, lease.entry.id, [lease.run])
        self._claimer.given_back(lease)
