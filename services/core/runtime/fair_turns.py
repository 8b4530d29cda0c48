"""Turns at something scarce, fair over whom they are for: no key, however much it asks for, keeps another from its
turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

_Queue = dict[asyncio.Future[None], None]
"""Who waits for one key, the first first."""


class NoTurn(Exception):
    """The turn did not come within the patience."""


class FairTurns:
    """`slots` turns at a time, at most `each` of them for one key. The keys that wait are served in turn, and who waits
    for a key in the order of coming.
    """

    def __init__(self, slots: int, *, each: int, patience_s: float | None = None) -> None:
        """With `patience_s` who waits longer gives up."""
        self._free = slots
        self._each = each
        self._patience_s = patience_s
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, _Queue] = {}

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """The block is one turn of `key`. Raises NoTurn when it does not begin within the patience."""
        await self._take(key)
        try:
            yield
        finally:
            self._give_back(key)

    async def _take(self, key: Hashable) -> None:
        if self._may_have(key):
            self._grant(key)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, {})[granted] = None
        try:
            async with asyncio.timeout(self._patience_s):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self._give_back(key)
            else:
                self._leave(key, granted)
            if isinstance(error, TimeoutError):
                raise NoTurn from None
            raise

    def _may_have(self, key: Hashable) -> bool:
        return self._free > 0 and self._held.get(key, 0) < self._each

    def _grant(self, key: Hashable) -> None:
        self._free -= 1
        self._held[key] = self._held.get(key, 0) + 1

    def _give_back(self, key: Hashable) -> None:
        self._free += 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._serve()

    def _leave(self, key: Hashable, granted: asyncio.Future[None]) -> None:
        queue = self._waiting.get(key)
        if queue is not None and granted in queue:
            del queue[granted]
            if not queue:
                del self._waiting[key]

    def _serve(self) -> None:
        while (key := next((key for key in self._waiting if self._may_have(key)), None)) is not None:
            queue = self._waiting.pop(key)
            granted = next(iter(queue))
            del queue[granted]
            if queue:
                self._waiting[key] = queue  # behind the other keys
            if not granted.done():  # cancelled, it has not left yet
                self._grant(key)
                granted.set_result(None)
