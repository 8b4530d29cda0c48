"""Natural group commit: what waits, from all callers, becomes one transaction (findings of `core.store.pipeline`, for
work that nobody holds a lease on).

There is no timer: a batch is what piled up while the last one was committed, so a lone item waits for nothing. A
commit that takes long holds up nobody behind it: another lane takes what waits, at once where that is much. Whose items
have waited for too long is told to come again (rulings P5), and no tenant's many keep another's few waiting (P8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.fair_queue import FairQueue

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

OVERLOADED = "OVERLOADED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a batch may hold, and what may wait. Sizes are in bytes, times in seconds.

    `slow_s`: a commit that takes longer has a lane opened beside it, up to `lanes`. `much`: where so many bytes wait
    one is opened at once, so that one batch is prepared while another is committed. `patience_s`: no more items are
    taken of a key whose oldest waits longer.
    """

    items: int = 256
    size: int = 4 * 1024 * 1024
    lanes: int = 3
    slow_s: float = 0.05
    much: int | None = None
    patience_s: float = 1.0
    waiting_size: int = 64 * 1024 * 1024


class Waiting(Generic[Item, Result]):
    """An item whose end somebody waits for."""

    __slots__ = ("_tell", "asked_at", "item", "key", "settled", "size")

    def __init__(
        self, item: Item, *, key: Hashable, size: int, asked_at: float, tell: Callable[[Result | Exception], None]
    ) -> None:
        self.item = item
        self.key = key
        self.size = size
        self.asked_at = asked_at
        self.settled = False
        self._tell = tell

    def settle(self, end: Result | Exception) -> None:
        """Tell what became of it. Only the first call counts."""
        if not self.settled:
            self.settled = True
            self._tell(end)


Batch = Sequence[Waiting[Item, Result]]
Commit = Callable[[Batch[Item, Result]], Awaitable[None]]
"""Commits a batch and settles each of its items. What it raises is the end of those that it has not settled."""

Turn = Callable[[], AbstractAsyncContextManager[None]]
"""What a lane waits for before it takes a batch."""


class GroupCommit(Generic[Item, Result]):
    """Commits items in batches. Needs no task of its own while nothing waits."""

    def __init__(
        self,
        commit: Commit[Item, Result],
        clock: Clock,
        bounds: Bounds,
        *,
        turn: Turn = nullcontext,
        idle: Callable[[], object] | None = None,
    ) -> None:
        """`idle` is called when nothing waits and nothing is being committed any more."""
        self._commit = commit
        self._clock = clock
        self._bounds = bounds
        self._turn = turn
        self._idle = idle
        self._queue: FairQueue[Waiting[Item, Result]] = FairQueue()
        self._lanes: dict[asyncio.Task[None], float] = {}
        self._look: asyncio.TimerHandle | None = None
        self._fresh: set[asyncio.Task[None]] = set()
        """Lanes that have taken nothing yet."""

    async def commit(self, item: Item, *, key: Hashable, size: int) -> Result:
        """The result of `item` after its commit. Raises what `submit` raises, and its end where that is an error."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def tell(end: Result | Exception) -> None:
            if future.done():
                return
            if isinstance(end, Exception):
                future.set_exception(end)
            else:
                future.set_result(end)

        self.submit(item, key=key, size=size, tell=tell)
        return await future

    def submit(self, item: Item, *, key: Hashable, size: int, tell: Callable[[Result | Exception], None]) -> None:
        """Have `item` committed and its end told. `key` is whose it is. Raises Unavailable where too much waits."""
        now = self._clock.monotonic()
        oldest = self._queue.oldest(key)
        if oldest is not None and now - oldest > self._bounds.patience_s:
            raise overloaded()
        if self._queue and self._queue.weight + size > self._bounds.waiting_size:
            raise overloaded()
        waiting: Waiting[Item, Result] = Waiting(item, key=key, size=size, asked_at=now, tell=tell)
        self._queue.put(key, waiting, weight=size, now=now)
        if not self._lanes:
            self._open()
        else:
            self._watch()

    def _open(self) -> None:
        lane = asyncio.create_task(self._serve(), name="group-commit")
        self._fresh.add(lane)
        self._lanes[lane] = self._clock.monotonic()
        lane.add_done_callback(self._close)

    def _close(self, lane: asyncio.Task[None]) -> None:
        del self._lanes[lane]
        self._fresh.discard(lane)
        if self._queue and not self._lanes:
            self._open()
        elif not self._lanes and self._idle is not None:
            self._idle()

    def _watch(self) -> None:
        """See to it that something that waits behind slow commits, or is much, does not wait for their end."""
        if self._waits_much() and len(self._lanes) < self._bounds.lanes:
            self._open()
        if self._look is None and self._queue and len(self._lanes) < self._bounds.lanes:
            self._look = asyncio.get_running_loop().call_later(self._bounds.slow_s, self._open_beside)

    def _waits_much(self) -> bool:
        """Whether much waits and nobody is about to take it."""
        much = self._bounds.much
        return much is not None and not self._fresh and self._queue.weight >= much

    def _open_beside(self) -> None:
        self._look = None
        if self._queue and self._lanes and self._all_slow():
            self._open()
        self._watch()

    def _all_slow(self, but: asyncio.Task[None] | None = None) -> bool:
        """Whether none of the other lanes will soon take what waits."""
        now = self._clock.monotonic()
        return all(now - since >= self._bounds.slow_s for lane, since in self._lanes.items() if lane is not but)

    async def _serve(self) -> None:
        lane = asyncio.current_task()
        assert lane is not None
        while self._queue:
            self._lanes[lane] = self._clock.monotonic()
            try:
                async with self._turn():
                    self._fresh.discard(lane)
                    await self._settle(self._queue.take(self._bounds.items, self._bounds.size))
            except Unavailable as error:
                self._give_up(error)
            if not self._all_slow(but=lane) and not self._waits_much():
                self._watch()
                return  # another one takes the rest: one is enough until it is slow again

    async def _settle(self, batch: Batch[Item, Result]) -> None:
        if not batch:
            return
        self._watch()
        try:
            await self._commit(batch)
        except Exception as error:
            if not isinstance(error, Unavailable):
                log.exception("a batch failed", extra={"items": len(batch)})
            for waiting in batch:
                waiting.settle(error)
            if isinstance(error, Unavailable):
                raise
        except asyncio.CancelledError:
            for waiting in batch:
                waiting.settle(Unavailable("the process ends; whether it was carried out is not known"))
            raise

    def _give_up(self, error: Unavailable) -> None:
        """The database is away: who has waited for long does not wait for the next attempt."""
        for waiting in self._queue.take_older(self._clock.monotonic() - self._bounds.patience_s):
            waiting.settle(error)


def overloaded() -> Unavailable:
    """Why no more is taken: what is there waits for too long, or is too big."""
    return Unavailable("too much waits here; try again", reason=OVERLOADED, metadata={"retry_after_s": "1"})
