"""The executor's end of the ready stream: pulls hints while there is room for runs, and acknowledges on receipt."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg

from services.core.bus.jetstream import Bus
from services.core.bus.payload import BadPayload, ReadyHint, decode_ready
from services.core.bus.pull import Pull
from services.core.bus.session import FAULTS, Session

log = logging.getLogger(__name__)

Deliver = Callable[[ReadyHint], Awaitable[None]]
Capacity = Callable[[], Awaitable[int]]

_EXPIRES_S = 5.0
_PAUSE_S = 0.2
_MAX_MESSAGES = 256
# A message takes about 230 bytes with its subjects and headers, and 18 for each of its runs, of which there may be 16.
_RUN_BYTES = 80
_FULL_MESSAGE_BYTES = 1_000


async def consume_ready(bus: Bus, deliver: Deliver, capacity: Capacity) -> None:
    """Deliver ready hints until cancelled, over every fault of NATS.

    `capacity` returns, as soon as it is at least 1, how many runs there is room for. `deliver` gets each hint as it
    comes; what it raises is logged, and the hint is lost.
    """
    while True:
        room = await capacity()
        session = await bus.session()
        began = time.monotonic()
        pull = _pull(session, min(room, _MAX_MESSAGES), deliver)
        try:
            await pull.run(bus.subjects.pull, _nothing_else)
        except FAULTS as error:
            log.debug("pull of hints interrupted", extra={"fault": type(error).__name__})
        if pull.missing:
            bus.look_again()
        if pull.received == 0 and time.monotonic() - began < _PAUSE_S:
            await asyncio.sleep(_PAUSE_S)  # no stream, no consumer, no connection: never spin


def _pull(session: Session, batch: int, deliver: Deliver) -> Pull[None]:
    async def receive(message: Msg) -> None:
        with contextlib.suppress(BadPayload):
            await take(decode_ready(message.data))
        await session.client.publish(message.reply, b"+ACK")

    async def take(hint: ReadyHint) -> None:
        try:
            await deliver(hint)
        except Exception:
            log.exception("a hint was not taken")

    # The byte limit keeps messages of many runs from bringing far more than there is room for.
    max_bytes = _FULL_MESSAGE_BYTES + batch * _RUN_BYTES
    return Pull(session, batch=batch, max_bytes=max_bytes, expires_s=_EXPIRES_S, receive=receive)


async def _nothing_else(_: list[None]) -> None:
    """All is delivered as it comes."""
