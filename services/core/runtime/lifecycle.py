"""The life of a process: start in order, watch, drain on a signal, close in reverse.

Order of a drain: readiness off → wait until balancers noticed (`drain_delay_s`) → `drain()` of every component in
reverse order, all within the grace period → running tasks cancelled → `stop()` in reverse order. List components from
the lowest dependency to the one that pulls work: pool, bus, servers, workers. A second signal, or the end of the grace
period, skips what is left of the drain; `stop()` is always called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from services.core.runtime.health import Health

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0


class StartRefused(Exception):
    """The process must not start like this; the text tells whoever starts it what to change, and holds no secret."""


class Component:
    """A part of a process. Inherit to get the defaults that do nothing."""

    name: str

    async def start(self) -> None:
        """Opens what `run` needs. Raising ends the process; StartRefused and OSError without a traceback."""

    async def run(self) -> None:
        """Works until cancelled. Returning before a drain, or raising, ends the process."""
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Takes no more work; returns when what it holds is finished or handed back. Called at most once."""

    async def stop(self) -> None:
        """Closes everything, also after a failed start. Must bear a second call; is cut off after 5 s."""


class Supervisor:
    """Runs components as one: the first that dies takes the process down, in order."""

    def __init__(
        self, components: Sequence[Component], *, health: Health, grace_s: float, drain_delay_s: float = 0.0
    ) -> None:
        self._components = tuple(components)
        self._health = health
        self._grace_s = grace_s
        self._drain_delay_s = drain_delay_s
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._failed = False

    def request_stop(self, reason: str, *, grace_s: float | None = None) -> None:
        """Starts the drain; a second request ends it at once. `grace_s` shortens the grace period."""
        if self._stop.is_set():
            log.warning("stopping at once", extra={"reason": reason})
            self._force.set()
            return
        log.info("draining", extra={"reason": reason})
        if grace_s is not None:
            self._grace_s = min(self._grace_s, grace_s)
        self._health.set_draining()
        self._stop.set()

    async def run(self) -> int:
        """Returns when everything is closed: 0 after a clean drain, 1 when a component died or had to be forced."""
        touched: list[Component] = []
        try:
            if await self._start(touched):
                await self._serve(touched)
        finally:
            await self._close(touched)
        return 1 if self._failed else 0

    async def _start(self, touched: list[Component]) -> bool:
        starting = asyncio.create_task(self._start_all(touched), name="start")
        stopping = asyncio.create_task(self._stop.wait(), name="stop-requested")
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not starting.done():
                starting.cancel()
            await asyncio.wait({starting, stopping})
        if starting.cancelled():
            return False
        error = starting.exception()
        if error is not None:
            raise error
        return not self._stop.is_set()

    async def _start_all(self, touched: list[Component]) -> None:
        for component in self._components:
            touched.append(component)
            await component.start()
            log.debug("started", extra={"component": component.name})

    async def _serve(self, components: Sequence[Component]) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch(component), name=component.name) for component in components]
            self._health.set_started()
            log.info("started", extra={"components": ", ".join(component.name for component in components)})
            await self._stop.wait()
            await self._drain_within_grace(components)
            for task in tasks:
                task.cancel()

    async def _watch(self, component: Component) -> None:
        try:
            await component.run()
        except Exception:
            log.exception("component died", extra={"component": component.name})
        else:
            if self._stop.is_set():
                return
            log.error("component ended by itself", extra={"component": component.name})
        self._failed = True
        if not self._stop.is_set():
            self.request_stop(f"{component.name} died")

    async def _drain_within_grace(self, components: Sequence[Component]) -> None:
        draining = asyncio.create_task(self._drain(components), name="drain")
        forced = asyncio.create_task(self._force.wait(), name="forced")
        done, _ = await asyncio.wait({draining, forced}, timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if draining not in done:
            self._failed = True
            log.error("the drain did not end in time", extra={"grace_s": self._grace_s})
            draining.cancel()
            await asyncio.wait({draining}, timeout=STOP_TIMEOUT_S)

    async def _drain(self, components: Sequence[Component]) -> None:
        if self._drain_delay_s:
            await asyncio.sleep(self._drain_delay_s)
        for component in reversed(components):
            try:
                await component.drain()
            except Exception:
                self._failed = True
                log.exception("drain failed", extra={"component": component.name})

    async def _close(self, components: Sequence[Component]) -> None:
        for component in reversed(components):
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await component.stop()
            except Exception:
                self._failed = True
                log.exception("stop failed", extra={"component": component.name})
