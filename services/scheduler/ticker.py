"""Runs duties, each on its own rhythm and watched: one that fails is logged and tried again, and stops no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from services.core.domain.errors import Unavailable
from services.core.runtime.lifecycle import Component
from services.core.runtime.metric_table import DUTY_FAILURES, DUTY_WORK
from services.core.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_RUN_LIMIT_S = 60.0
_AWAY_PAUSES_S = (0.2, 2.0)
_FAULT_PAUSES_S = (1.0, 60.0)


class Duty(Protocol):
    """A piece of maintenance. `run_once` may be run by any number of schedulers at once."""

    name: str

    async def run_once(self) -> Mapping[str, int]:
        """Do what there is to do now; counts of what was done, by name. Raises Unavailable."""
        ...

    async def idle(self) -> None:
        """Return when it is worth running again."""
        ...


class PeriodicDuty:
    """A duty that looks every `period_s` seconds."""

    name: str
    period_s: float

    async def idle(self) -> None:
        """One period."""
        await asyncio.sleep(self.period_s)


class Ticker(Component):
    """The duties of this process, a task each."""

    name = "ticker"

    def __init__(self, duties: Sequence[Duty], metrics: Metrics | None = None) -> None:
        """Without `metrics` it counts for nobody."""
        self._duties = tuple(duties)
        self._metrics = metrics or Metrics()
        self._stopping = asyncio.Event()
        self._loops: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until drained or cancelled."""
        async with asyncio.TaskGroup() as group:
            for duty in self._duties:
                self._loops.add(group.create_task(self._keep(duty), name=f"duty-{duty.name}"))

    async def drain(self) -> None:
        """Let what runs come to its end, and start nothing more."""
        self._stopping.set()
        if self._loops:
            await asyncio.wait(self._loops)

    async def _keep(self, duty: Duty) -> None:
        faults = 0
        away = False
        failures = self._metrics.counter(DUTY_FAILURES, duty.name)
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(_RUN_LIMIT_S):
                    counts = await duty.run_once()
            except Unavailable as error:
                if not away:
                    log.warning("duty waits for the database", extra={"duty": duty.name, "fault": error.message})
                away = True
                faults += 1
                failures.add()
                await self._rest(_AWAY_PAUSES_S, faults)
                continue
            except Exception:
                faults += 1
                failures.add()
                log.exception("duty failed", extra={"duty": duty.name, "failures": faults})
                await self._rest(_FAULT_PAUSES_S, faults)
                continue
            if away:
                log.info("duty goes on", extra={"duty": duty.name})
            faults, away = 0, False
            if any(counts.values()):
                self._count(duty, counts)
                log.debug("duty done", extra={"duty": duty.name, **counts})
            await self._idle(duty)

    def _count(self, duty: Duty, counts: Mapping[str, int]) -> None:
        for what, count in counts.items():
            if count > 0:
                self._metrics.counter(DUTY_WORK, duty.name, what).add(count)

    async def _rest(self, pauses_s: tuple[float, float], faults: int) -> None:
        first, longest = pauses_s
        try:
            async with asyncio.timeout(min(longest, first * 2 ** min(faults - 1, 10))):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _idle(self, duty: Duty) -> None:
        idle = asyncio.ensure_future(duty.idle())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({idle, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if idle.done():
                idle.result()
        finally:
            idle.cancel()
            stopping.cancel()
