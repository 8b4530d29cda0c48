"""An executor process of the model: the real parts, and the ways in which a process ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from uuid import UUID

from runr_workflows.connect.stream import StreamLost

from services.core.domain.errors import Unavailable
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, Publisher
from services.core.engine.retrying import retrying
from services.core.engine.sync import Syncer
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import LeaseSettings
from services.core.store.database import Database
from services.executor.incarnation import Incarnation
from services.executor.owner import Owner, OwnerLost
from services.executor.worker_stream.handshake import Handshake
from services.executor.worker_stream.recalls import Recalls
from services.executor.worker_stream.service import WorkerService
from services.executor.worker_stream.session import Brought, WorkerSession
from services.executor.worker_stream.sessions import WorkerSessions
from tests.model.clock import MovedClock
from tests.model.function import Functions
from tests.model.line import Line
from tests.support.engine import make_incarnation

LEASE = LeaseSettings(ttl_s=30.0, heartbeat_s=0.2)
_RESUME_GRACE_S = 0.5
_DRAIN_S = 0.2
_LAST_WORDS_S = 0.02

EndSessions = Callable[[], Awaitable[None]]


class ModelExecutor:
    """One executor. It lives one incarnation after another, as the component `Executor` lets it.

    `end_sessions` makes the server end all its database sessions.
    """

    def __init__(
        self,
        url: str,
        functions: Functions,
        publisher: Publisher,
        clock: MovedClock,
        end_sessions: EndSessions,
        rng: random.Random,
        *,
        slots: int,
    ) -> None:
        self.url = url
        self._rng = rng
        self._end_sessions = end_sessions
        self._functions = functions
        self._publisher = publisher
        self._clock = clock
        self._slots = slots
        self._sealer = Sealer(bytes(range(32)))
        self._is_over = False
        self._armed: tuple[str, int] | None = None
        self._dying = asyncio.Event()
        self._changing = asyncio.Lock()
        self._registered = asyncio.Event()
        self._database = Database(url, name="model-executor", size=4)
        self._incarnation: Incarnation | None = None
        self._owner: Owner | None = None
        self._life: asyncio.Task[None] | None = None
        self._lines: list[Line] = []
        self._service: WorkerService | None = None

    @property
    def owner(self) -> int | None:
        """The id under which it holds runs."""
        return None if self._incarnation is None else self._incarnation.owner.id

    @property
    def held(self) -> Collection[UUID]:
        """The runs in its memory."""
        return () if self._incarnation is None else self._incarnation.held

    @property
    def fault(self) -> BaseException | None:
        """What ended its life unasked."""
        life = self._life
        return life.exception() if life is not None and life.done() and not life.cancelled() else None

    @property
    def is_dying(self) -> bool:
        """Whether it has reached the commit point where it is to die."""
        return self._dying.is_set()

    async def start(self) -> None:
        """Begin to live."""
        self._dying.clear()
        self._armed = None
        self._database = Database(self.url, name="model-executor", size=4)
        self._definitions = DefinitionsCache(self._sealer)
        self._sessions = WorkerSessions(self._clock, request_timeout_s=30.0, resume_grace_s=_RESUME_GRACE_S)
        self._sessions.adopt_with(self._adopt)
        self._recalls = Recalls(self._database, self._sessions, Hints(self._publisher))
        await retrying(lambda _: self._database.open())
        self._registered.clear()
        self._is_over = False
        self._life = asyncio.create_task(self._live())
        syncer = Syncer(self._database, lambda _: None)
        handshake = Handshake(self._database, self._definitions, syncer)
        self._service = WorkerService(self._sessions, handshake, self._recalls, self._clock)
        await self._registered.wait()

    def connect(self) -> Line:
        """A worker's stream. Raises StreamLost while there is no process."""
        if self._service is None or self.is_dying:
            raise StreamLost("nobody listens")
        line = Line(self._service, self._rng)
        self._lines = [each for each in self._lines if each.is_open] + [line]
        return line

    async def die(self, *, only_dying: bool = False) -> None:
        """End as by kill -9, and be started again. `only_dying`: not if it lives, or another has done this already."""
        async with self._changing:
            if not only_dying or self.is_dying:
                await self._kill()
                await self.start()

    async def restart(self) -> Collection[UUID]:
        """Stop in order, and be started again. The runs that it held while it stopped."""
        async with self._changing:
            held = await self.stop()
            await self.start()
        return held

    async def cut(self) -> None:
        """Lose all connections to the server, and live on."""
        async with self._changing:
            await self._end_sessions()

    def hint(self, runs: Sequence[UUID]) -> None:
        """These runs may be ready."""
        if self._incarnation is not None:
            self._incarnation.hint(runs)

    def pooled(self, workflows: Sequence[int]) -> None:
        """These workflows may have runs that only workers serve."""
        if self._incarnation is not None:
            self._incarnation.pooled(workflows)

    def mailed(self, owner: int, runs: Sequence[UUID]) -> None:
        """Something was delivered to runs of `owner`."""
        if self._incarnation is not None and self._incarnation.owner.id == owner:
            self._incarnation.mailed(runs)

    def abandon(self, owner: int, runs: Sequence[UUID]) -> None:
        """Runs that were taken from `owner`."""
        if self._incarnation is not None and self._incarnation.owner.id == owner:
            self._incarnation.abandon(runs)

    def arm(self, point: str, after: int) -> None:
        """Die when a run gets to this commit point for the `after`-th time."""
        self._armed = (point, after)

    def disarm(self) -> None:
        """Do not die any more."""
        self._armed = None

    async def _kill(self) -> None:
        """Nothing is given back, nothing is said, and the server sees its sessions close."""
        self._incarnation = self._service = None
        self._hang_up()
        await self._end()
        if self._owner is not None:
            self._owner.hang_up()
        await self._end_sessions()
        await self._database.close()

    async def stop(self) -> Collection[UUID]:
        """Stop in order: finish the steps that run, hand back the rest. The runs that it held meanwhile."""
        self._sessions.announce_drain()
        incarnation = self._incarnation
        held = set(self.held)
        try:
            async with asyncio.timeout(_DRAIN_S):
                if incarnation is not None:
                    await incarnation.drain()
                await self._sessions.drain()
        except TimeoutError:
            pass  # slow bodies: the grace is over
        held.update(self.held)
        await self._end()
        self._incarnation = None
        if incarnation is not None:
            await incarnation.leave()
        if self._owner is not None:  # which may be that of a life that had not begun yet
            self._owner.hang_up()
        await asyncio.sleep(_LAST_WORDS_S)
        self._service = None
        self._hang_up()
        await self._database.close()
        return held

    def _hang_up(self) -> None:
        for line in self._lines:
            line.cut()
        self._lines.clear()

    async def _adopt(self, session: WorkerSession, items: Sequence[Brought]) -> None:
        if self._incarnation is None:
            raise Unavailable("no lease can be held here now")
        await self._incarnation.adopt(session, items)

    async def _end(self) -> None:
        self._is_over = True
        if self._life is not None and not self._life.done():
            self._life.cancel()
            await asyncio.wait({self._life})

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sessions.run(), name="worker-sessions")
            group.create_task(self._recalls.run(), name="worker-recalls")
            group.create_task(self._lives(), name="lives")

    async def _lives(self) -> None:
        while not self._is_over:  # a task group that raises something else leaves the cancellation out
            incarnation = make_incarnation(
                self._database,
                self._functions,
                slots=self._slots,
                publisher=self._publisher,
                lease=LEASE,
                probe=self._probe,
                definitions=self._definitions,
                clock=self._clock,
                sessions=self._sessions,
                own_timers=True,
            )
            self._owner = incarnation.owner
            await self._one_life(incarnation)
            self._owner.hang_up()

    async def _one_life(self, incarnation: Incarnation) -> None:
        try:
            await incarnation.owner.register()
        except Unavailable:
            await asyncio.sleep(0.05)
            return
        self._incarnation = incarnation
        self._registered.set()
        try:
            await incarnation.run()
        except* OwnerLost:
            self._incarnation = None

    async def _probe(self, point: str) -> None:
        if self._dying.is_set():
            await asyncio.Event().wait()  # the process is gone; its tasks are only not ended yet
        if self._armed is None or self._armed[0] != point:
            return
        self._armed = (point, self._armed[1] - 1)
        if self._armed[1] <= 0:
            self._dying.set()
            await asyncio.Event().wait()
