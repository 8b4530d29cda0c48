"""Looking names up, once for all who ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_SHARED_S = 1.0
_MAX_KNOWN = 1024

Resolve = Callable[[str], Awaitable[list[str]]]


class SharedLookups:
    """Answers of a resolver, shared by those who ask together and for a second more. Failures are not kept."""

    def __init__(self, resolve: Resolve) -> None:
        """`resolve` gives the addresses of a name, or raises OSError."""
        self._resolve = resolve
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._running: dict[str, asyncio.Task[list[str]]] = {}

    async def __call__(self, host: str) -> list[str]:
        """The addresses of `host`. Raises what the resolver raises."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(host)
        if known is not None and now - known[0] < _SHARED_S:
            return known[1]
        task = self._running.get(host)
        if task is None:
            task = self._running[host] = asyncio.create_task(self._look_up(host))
            task.add_done_callback(_retrieve)
        # Shielded: whoever gives up waiting must not take the answer from the others.
        return await asyncio.shield(task)

    def close(self) -> None:
        """Take no more answers."""
        for task in self._running.values():
            task.cancel()

    async def _look_up(self, host: str) -> list[str]:
        try:
            addresses = await self._resolve(host)
        finally:
            del self._running[host]
        now = asyncio.get_running_loop().time()
        if len(self._known) >= _MAX_KNOWN:
            self._known = {name: entry for name, entry in self._known.items() if now - entry[0] < _SHARED_S}
        self._known[host] = (now, addresses)
        return addresses


def _retrieve(task: asyncio.Task[list[str]]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not task.cancelled():
        task.exception()
