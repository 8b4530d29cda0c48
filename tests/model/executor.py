"""An executor process of the model: the real parts, and the ways in which a process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from uuid import UUID

from services.core.domain.errors import Unavailable
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Publisher
from services.core.engine.retrying import retrying
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import LeaseSettings
from services.core.store.database import Database
from services.executor.incarnation import Incarnation
from services.executor.owner import OwnerLost
from tests.model.clock import MovedClock
from tests.model.function import Functions
from tests.support.engine import make_incarnation

LEASE = LeaseSettings(ttl_s=30.0, heartbeat_s=0.2)

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
        *,
        slots: int,
    ) -> None:
        self.url = url
        self._end_sessions = end_sessions
        self._functions = functions
        self._publisher = publisher
        self._clock = clock
        self._slots = slots
        self._sealer = Sealer(bytes(range(32)))
        self._armed: tuple[str, int] | None = None
        self._dying = asyncio.Event()
        self._changing = asyncio.Lock()
        self._registered = asyncio.Event()
        self._database = Database(url, name="model-executor", size=4)
        self._incarnation: Incarnation | None = None
        self._life: asyncio.Task[None] | None = None

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
        await retrying(lambda _: self._database.open())
        self._registered.clear()
        self._life = asyncio.create_task(self._live())
        await self._registered.wait()

    async def die(self, *, only_dying: bool = False) -> None:
        """End as by kill -9, and be started again. `only_dying`: not if it lives, or another has done this already."""
        async with self._changing:
            if not only_dying or self.is_dying:
                await self._kill()
                await self.start()

    async def restart(self) -> None:
        """Stop in order, and be started again."""
        async with self._changing:
            await self.stop()
            await self.start()

    async def cut(self) -> None:
        """Lose all connections to the server, and live on."""
        async with self._changing:
            await self._end_sessions()

    def hint(self, runs: Sequence[UUID]) -> None:
        """These runs may be ready."""
        if self._incarnation is not None:
            self._incarnation.hint(runs)

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
        self._incarnation = None
        await self._end()
        await self._end_sessions()
        await self._database.close()

    async def stop(self) -> None:
        """Stop in order: finish the steps that run, hand back the rest."""
        incarnation, self._incarnation = self._incarnation, None
        if incarnation is not None:
            try:
                async with asyncio.timeout(0.2):
                    await incarnation.drain()
            except TimeoutError:
                pass  # slow bodies: the grace is over
            await incarnation.leave()
        await self._end()
        await self._database.close()

    async def _end(self) -> None:
        if self._life is not None and not self._life.done():
            self._life.cancel()
            await asyncio.wait({self._life})

    async def _live(self) -> None:
        while True:
            incarnation = make_incarnation(
                self._database,
                self._functions,
                slots=self._slots,
                publisher=self._publisher,
                lease=LEASE,
                probe=self._probe,
                definitions=DefinitionsCache(self._sealer),
                clock=self._clock,
            )
            try:
                await incarnation.owner.register()
            except BaseException as error:
                await incarnation.owner.leave()
                if not isinstance(error, Unavailable):
                    raise
                await asyncio.sleep(0.05)
                continue
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
