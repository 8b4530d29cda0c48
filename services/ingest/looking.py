"""Waiting for something to happen to runs, for many callers at once.

Each waiting caller is looked after with a pause that grows, so what happens soon is told of at once and a long wait
costs little. Those that are due together share one small statement: the number of statements does not grow with the
number of callers.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.lifecycle import Component

_GROWTH = 1.5
_TOGETHER_S = 0.01


@dataclass(slots=True, eq=False)
class Waiter:
    """One caller. `mark` is what it knows of its run."""

    run: UUID
    mark: int | None
    due: float
    pause: float
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Looking(Component):
    """Tells callers when it is time to look. A database that is away delays the news and loses none.

    A subclass says whose wait is over. The pause of a caller grows from `first_s` to `last_s`.
    """

    def __init__(self, clock: Clock, *, first_s: float, last_s: float) -> None:
        self._clock = clock
        self._first_s = first_s
        self._last_s = last_s
        self._waiters: set[Waiter] = set()
        self._wake = asyncio.Event()
        self._closed = False

    @abstractmethod
    async def over(self, waiters: Sequence[Waiter]) -> list[Waiter]:
        """Those whose wait is over. Raises Unavailable."""

    @property
    def closed(self) -> bool:
        """Whether a drain has begun: nobody waits any more."""
        return self._closed

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
            waiter.over.set()

    async def _wait(self, run: UUID, mark: int | None, timeout_s: float) -> None:
        if self._closed:
            return
        waiter = Waiter(run, mark, self._clock.monotonic() + self._first_s, self._first_s)
        self._waiters.add(waiter)
        self._wake.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter.over.wait()
        finally:
            self._waiters.discard(waiter)

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

    async def _look(self, due: list[Waiter]) -> None:
        try:
            over = await self.over(due)
        except Unavailable:
            over = []
        for waiter in over:
            waiter.over.set()
            self._waiters.discard(waiter)
        now = self._clock.monotonic()
        for waiter in due:
            waiter.pause = min(waiter.pause * _GROWTH, self._last_s)
            waiter.due = now + waiter.pause
