"""Waiting for runs to end, for many callers at once.

Each waiting caller is looked after with a pause that grows from 20 ms to 0.5 s, so a short run is told of at once and
a long one costs little. Those that are due together share one small statement: the number of statements does not grow
with the number of callers.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from uuid import UUID

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.lifecycle import Component
from services.core.store.runs import RunReader

_FIRST_PAUSE_S = 0.02
_LAST_PAUSE_S = 0.5
_GROWTH = 1.5
_TOGETHER_S = 0.01


@dataclass(slots=True, eq=False)
class _Waiter:
    run: UUID
    due: float
    pause: float = _FIRST_PAUSE_S
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class RunEnds(Component):
    """Tells callers when runs have ended. A database that is away delays the news and loses none."""

    name = "run-ends"

    def __init__(self, reader: RunReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._waiters: set[_Waiter] = set()
        self._wake = asyncio.Event()
        self._closed = False

    async def wait(self, run: UUID, timeout_s: float) -> None:
        """Returns when the run has ended or the time has passed, at once in a drain: the caller looks for itself."""
        if self._closed:
            return
        waiter = _Waiter(run, self._clock.monotonic() + _FIRST_PAUSE_S)
        self._waiters.add(waiter)
        self._wake.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter.ended.wait()
        finally:
            self._waiters.discard(waiter)

    async def run(self) -> None:
        """Looks after the waiters until cancelled."""
        while True:
            await self._until_due()
            horizon = self._clock.monotonic() + _TOGETHER_S
            due = [waiter for waiter in self._waiters if waiter.due <= horizon]
            if due:
                await self._look(due)

    async def drain(self) -> None:
        """Lets every waiter go: their calls end within the grace of the server."""
        self._closed = True
        for waiter in self._waiters:
            waiter.ended.set()

    async def _until_due(self) -> None:
        self._wake.clear()
        first = min((waiter.due for waiter in self._waiters), default=None)
        if first is None:
            await self._wake.wait()
            return
        pause = first - self._clock.monotonic()
        if pause > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _look(self, due: list[_Waiter]) -> None:
        try:
            ended = await self._reader.ended_among(list({waiter.run for waiter in due}))
        except Unavailable:
            ended = set()
        now = self._clock.monotonic()
        for waiter in due:
            if waiter.run in ended:
                waiter.ended.set()
                self._waiters.discard(waiter)
            waiter.pause = min(waiter.pause * _GROWTH, _LAST_PAUSE_S)
            waiter.due = now + waiter.pause
