"""The executor as a component: one incarnation after another, fed with hints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from services.core.bus.jetstream import Bus
from services.core.bus.payload import ReadyHint
from services.core.bus.ready_consumer import consume_ready
from services.core.domain.errors import Unavailable
from services.core.runtime.health import NotReady
from services.core.runtime.lifecycle import Component
from services.core.store.database import ServerChanged
from services.executor.current_definitions import CurrentDefinitions
from services.executor.incarnation import Incarnation
from services.executor.owner import OwnerLost
from services.executor.worker_stream.session import Brought, WorkerSession
from services.executor.worker_stream.sessions import WorkerSessions

log = logging.getLogger(__name__)

_PAUSE_S = 0.5
_ALIVE_S = 10.0
"""For how long a worker that brings something along waits for an owner that can take it over, before it tries anew."""


class Executor(Component):
    """Holds runs for as long as the process lives. Declared dead by others, it begins again under a new id."""

    name = "executor"

    def __init__(
        self,
        bus: Bus,
        definitions: CurrentDefinitions,
        make_incarnation: Callable[[], Incarnation],
        *,
        sessions: WorkerSessions,
        bury: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`bury` takes their runs from processes that this one replaces; it may raise Unavailable."""
        self._bury = bury
        self._sessions = sessions
        sessions.adopt_with(self._adopt)
        self._bus = bus
        self._definitions = definitions
        self._make_incarnation = make_incarnation
        self._current: Incarnation | None = None
        self.lives_lost = 0
        """How often it was declared dead and began anew."""
        self._alive = asyncio.Event()

    @property
    def held(self) -> int:
        """How many runs are in memory."""
        return 0 if self._current is None else len(self._current.held)

    async def check(self) -> None:
        """Readiness: whether an owner is registered and its heartbeat is fresh. Raises NotReady."""
        if self._current is None or not self._current.owner.may_invoke:
            raise NotReady("no lease can be held: the heartbeat is not confirmed")

    async def run(self) -> None:
        """See `Component.run`."""
        await self._bus.on_defs(self._definitions.changed)
        await self._bus.on_pool(self._take_pooled)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._definitions.run(), name="executor-definitions")
            group.create_task(self._live(), name="executor-lives")
            group.create_task(consume_ready(self._bus, self._take_hint, self._capacity), name="executor-hints")

    async def drain(self) -> None:
        """Finish the steps that run, hand the rest back."""
        self._sessions.announce_drain()  # before their runs are given back
        if self._current is not None:
            await self._current.drain()

    async def stop(self) -> None:
        """Give back what is still held."""
        current, self._current = self._current, None
        if current is not None:
            await current.leave()

    async def _live(self) -> None:
        while True:
            incarnation = self._make_incarnation()
            try:
                if self._bury is not None:
                    await self._bury()
                await incarnation.owner.register()
            except Unavailable:
                log.warning("cannot register: the database is away")
                await asyncio.sleep(_PAUSE_S)
                continue
            hearings = (
                await self._bus.on_cancel(incarnation.owner.id, self._abandon),
                await self._bus.on_mail(incarnation.owner.id, self._mailed),
            )
            self._current = incarnation
            self._alive.set()
            log.info("holding runs", extra={"owner": incarnation.owner.id})
            try:
                await _in_a_task(incarnation.run())
            except* (OwnerLost, ServerChanged):
                log.error("this executor was declared dead, or the database is another one: all leases are dropped")
                self._current = None
                self._alive.clear()
                self.lives_lost += 1
            finally:
                for hear_no_more in hearings:
                    await hear_no_more()

    async def _take_hint(self, hint: ReadyHint) -> None:
        if self._current is not None:
            self._current.hint(hint.run_ids)

    async def _take_pooled(self, workflows: tuple[int, ...]) -> None:
        if self._current is not None:
            self._current.pooled(workflows)

    async def _mailed(self, runs: tuple[UUID, ...]) -> None:
        if self._current is not None:
            self._current.mailed(runs)

    async def _adopt(self, session: WorkerSession, items: Sequence[Brought]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _ALIVE_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._alive.wait()
            try:
                if self._current is None:
                    raise Unavailable("no lease can be held here now")
                await self._current.adopt(session, items)
                return
            except Unavailable:
                if loop.time() + _PAUSE_S >= until:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _abandon(self, runs: tuple[UUID, ...]) -> None:
        if self._current is not None:
            self._current.abandon(runs)

    async def _capacity(self) -> int:
        while True:
            await self._alive.wait()
            current = self._current
            room = 0 if current is None else await current.wait_for_room()
            if room > 0:
                return room
            await asyncio.sleep(_PAUSE_S)  # this life drains or has just ended


async def _in_a_task(life: Coroutine[Any, Any, None]) -> None:
    """Await it. A cancellation meanwhile counts, also where the life ends of that with another error: a task group
    would raise that one alone.
    """
    task = asyncio.create_task(life, name="executor-life")
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    task.result()
