"""One pull request to a JetStream consumer, and what arrives for it.

nats-py's own fetch spins once its client is closed and swallows cancellation; this one ends with its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nats.aio.msg import Msg

from services.core.bus.session import FAULTS, Session

T = TypeVar("T")

_GUARD_S = 2.0


class Pull(Generic[T]):
    """A request for at most `batch` messages and about `max_bytes`, open for `expires_s`.

    `receive` is called with each message as it arrives, and tells what it is; None is left out.
    """

    def __init__(
        self,
        session: Session,
        *,
        batch: int,
        max_bytes: int,
        expires_s: float,
        receive: Callable[[Msg], Awaitable[T | None]],
    ) -> None:
        self.received = 0
        self.missing = False
        """The stream or the consumer is not there."""
        self._session = session
        self._batch = batch
        self._max_bytes = max_bytes
        self._expires_s = expires_s
        self._understand = receive
        self._taken: list[T] = []
        self._ended = False
        self._wake = asyncio.Event()

    async def run(self, subject: str, deliver: Callable[[list[T]], Awaitable[None]]) -> None:
        """Deliver what comes, each time all that came while `deliver` last ran.

        Returns when the request is served or over and everything is delivered. Raises one of FAULTS, and what `deliver`
        raises.
        """
        client = self._session.client
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, cb=self._receive)
        self._session.watchers.add(self._wake)
        try:
            await client.publish(subject, self._request(), reply=inbox)
            await self._collect(deliver)
        finally:
            self._session.watchers.discard(self._wake)
            with contextlib.suppress(*FAULTS):
                await subscription.unsubscribe()

    def end(self) -> None:
        """No more is wanted: `run` returns when what has arrived is delivered."""
        self._ended = True
        self._wake.set()

    def _request(self) -> bytes:
        request = {"batch": self._batch, "max_bytes": self._max_bytes, "expires": int(self._expires_s * 1e9)}
        return json.dumps(request).encode()

    async def _receive(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers and not message.reply else None
        if status is not None:
            self._ended = True
            self.missing = (
                status in ("503", "404") or "deleted" in (message.headers or {}).get("Description", "").lower()
            )
        else:
            self.received += 1
            self._ended = self._ended or self.received >= self._batch
            understood = await self._understand(message)
            if understood is not None:
                self._taken.append(understood)
        self._wake.set()

    async def _collect(self, deliver: Callable[[list[T]], Awaitable[None]]) -> None:
        until = time.monotonic() + self._expires_s + _GUARD_S
        while self._taken or not (self._ended or self._session.closed.is_set()):
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                self._ended = True  # the request or its end was lost
            self._wake.clear()
            taken, self._taken = self._taken, []
            if taken:
                await deliver(taken)
