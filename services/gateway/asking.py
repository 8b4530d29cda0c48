"""A unary call that is made again when that is harmless: nobody has seen it, or it only reads.

So a service may be replaced under its callers: while one replica leaves and another one is found, calls wait a moment.
While a service stays away, each call after that moment is refused at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from services.core.rpc.status import from_rpc_error, has_broken_off, was_never_sent
from services.core.runtime.clock import Clock

_FOUND_S = 2.0
"""How long after it was missed a service is waited for: a lost connection is made again within a second."""

_PAUSE_S = 0.05
_REPEATS = 2
"""How often a call that has broken off is made again: a request that ends its server must not end all of them."""

_ONLY_READ = ("Get", "List", "Await")
"""How the names of methods begin that change nothing."""


def only_reads(method: str) -> bool:
    """Whether a method, by its name without its service, may be called twice."""
    return method.startswith(_ONLY_READ)


class Peer:
    """One service as the gateway calls it: its channel, and since when nobody was found behind it."""

    def __init__(self, name: str, channel: Any, clock: Clock, *, found_s: float = _FOUND_S) -> None:
        self.name = name
        self.channel = channel
        self._clock = clock
        self._found_s = found_s
        self._missed: float | None = None

    async def ask(self, call: Any, request: Any, *, metadata: Any, timeout_s: float, reads: bool) -> Any:
        """The response to `request` of `call`, a method of a stub. Raises the DomainError behind its status."""
        deadline = self._clock.monotonic() + timeout_s
        repeats = _REPEATS if reads else 0
        while True:
            try:
                return await call(request, metadata=metadata, timeout=deadline - self._clock.monotonic())
            except grpc.aio.AioRpcError as error:
                seen = not was_never_sent(error)
                harmless = not seen or (repeats > 0 and has_broken_off(error))
                if not harmless or not await self._found(deadline):
                    raise from_rpc_error(error, peer=self.name) from error
                repeats -= seen

    async def _found(self, deadline: float) -> bool:
        """Wait for somebody who can be called; False when there is nobody within the moment."""
        now = self._clock.monotonic()
        if self._missed is None:
            self._missed = now
        until = min(self._missed + self._found_s, deadline)
        # The connection of a server that ends is known to be gone a little later.
        await asyncio.sleep(_PAUSE_S)
        while (state := self.channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self.channel.wait_for_state_change(state)
        self._missed = None
        return True
