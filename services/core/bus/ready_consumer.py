"""The executor's end of the ready stream: pulls hints while there is room for runs, and acknowledges on receipt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from nats.aio.msg import Msg

from services.core.bus.jetstream import Bus
from services.core.bus.payload import BadPayload, ReadyHint, decode_ready
from services.core.bus.session import FAULTS, Session

log = logging.getLogger(__name__)

Deliver = Callable[[Sequence[ReadyHint]], Awaitable[None]]
Capacity = Callable[[], Awaitable[int]]

_EXPIRES_S = 5.0
_GUARD_S = 2.0
_PAUSE_S = 0.2
_MAX_MESSAGES = 256
_MESSAGE_BYTES = 250  # about what a hint of one run takes with its subjects and headers
_FULL_MESSAGE_BYTES = 6_000  # and one of 256 runs


async def consume_ready(bus: Bus, deliver: Deliver, capacity: Capacity) -> None:
    """Deliver ready hints until cancelled, over every fault of NATS.

    `capacity` returns, as soon as it is at least 1, how many runs there is room for. `deliver` gets the hints that came
    while it last ran, all at once; what it raises is logged, and the hints are lost.
    """
    while True:
        room = await capacity()
        session = await bus.session()
        began = time.monotonic()
        pull = _Pull(session, min(room, _MAX_MESSAGES))
        try:
            await pull.run(bus.subjects.pull, deliver)
        except FAULTS as error:
            log.debug("pull of hints interrupted", extra={"fault": type(error).__name__})
        if pull.missing:
            bus.look_again()
        if pull.received == 0 and time.monotonic() - began < _PAUSE_S:
            await asyncio.sleep(_PAUSE_S)  # no stream, no consumer, no connection: never spin


class _Pull:
    """One request for at most `batch` messages."""

    def __init__(self, session: Session, batch: int) -> None:
        self.received = 0
        self.missing = False
        self._session = session
        self._batch = batch
        self._hints: list[ReadyHint] = []
        self._ended = False
        self._wake = asyncio.Event()

    async def run(self, subject: str, deliver: Deliver) -> None:
        """Returns when the request is served or over and everything is delivered. Raises one of FAULTS."""
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

    def _request(self) -> bytes:
        # The byte limit keeps messages of many runs from bringing far more than there is room for.
        limit = _FULL_MESSAGE_BYTES + self._batch * _MESSAGE_BYTES
        request = {"batch": self._batch, "max_bytes": limit, "expires": int(_EXPIRES_S * 1e9)}
        return json.dumps(request).encode()

    async def _receive(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers else None
        if status is not None:
            self._ended = True
            self.missing = (
                status in ("503", "404") or "deleted" in (message.headers or {}).get("Description", "").lower()
            )
        else:
            self.received += 1
            self._ended = self._ended or self.received >= self._batch
            with contextlib.suppress(BadPayload):
                self._hints.append(decode_ready(message.data))
            await self._session.client.publish(message.reply, b"+ACK")
        self._wake.set()

    async def _collect(self, deliver: Deliver) -> None:
        until = time.monotonic() + _EXPIRES_S + _GUARD_S
        while True:
            try:
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                self._ended = True  # the request or its end was lost
            self._wake.clear()
            hints, self._hints = self._hints, []
            if hints:
                try:
                    await deliver(hints)
                except Exception:
                    log.exception("hints were not taken", extra={"hints": len(hints)})
            elif self._ended or self._session.closed.is_set():
                return
