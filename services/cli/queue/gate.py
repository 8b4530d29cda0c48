"""What lets deliveries through while the engine can be reached, and one at a time while it is being tried again."""

from __future__ import annotations

import asyncio
import random

_FIRST_S = 0.5
_MOST_S = 30.0
_DOUBLINGS = 10


class Gate:
    """Open at first. Shut for a while by a failure that is no message's fault; then one may try, and opens it for all.

    Whoever was let through must say how it was: `succeed`, `fail` or `abandon`.
    """

    def __init__(self, source: random.Random, *, first_s: float = _FIRST_S, most_s: float = _MOST_S) -> None:
        """The pause doubles from `first_s` to `most_s`, and is drawn from the half below it to the whole."""
        self._random = source
        self._first_s = first_s
        self._most_s = most_s
        self._failures = 0
        self._may_try = asyncio.Event()
        self._may_try.set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether all may go through."""
        return self._failures == 0

    async def passable(self) -> None:
        """Wait until somebody may go through."""
        await self._may_try.wait()

    async def enter(self) -> None:
        """Wait to be let through."""
        while not self._may_try.is_set():
            await self._may_try.wait()
        if not self.is_open:
            self._may_try.clear()  # the one that tries

    def succeed(self) -> None:
        """It can be reached."""
        self._stop_timer()
        self._failures = 0
        self._may_try.set()

    def fail(self, at_least_s: float = 0.0) -> float:
        """It cannot; for how many seconds nobody may try now. Those that were let through together count as one."""
        if self._timer is not None:
            return max(0.0, self._timer.when() - asyncio.get_running_loop().time())
        pause_s: float = min(self._first_s * 2 ** min(self._failures, _DOUBLINGS), self._most_s)
        pause_s = max(pause_s * self._random.uniform(0.5, 1.0), min(at_least_s, self._most_s))
        self._failures += 1
        self._may_try.clear()
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._let_one_try)
        return pause_s

    def abandon(self) -> None:
        """Whoever was let through will not know."""
        if self._timer is None:
            self._may_try.set()

    def close(self) -> None:
        """Let go of the timer."""
        self._stop_timer()

    def _let_one_try(self) -> None:
        self._timer = None
        self._may_try.set()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
