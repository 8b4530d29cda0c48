"""One stream to one replica of ingest: items out, answers in, and what becomes of the rest when it breaks.

A message takes what has piled up: while two of them are without any answer, items wait and pile up further. There is
no timer that a lone item would wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from services.core.rpc.status import from_status
from services.core.runtime.clock import Clock
from services.core.runtime.parse import Address
from services.gateway.submit.item import Form, Item
from services.gateway.submit.told_clock import ToldClock

log = logging.getLogger(__name__)

SILENCE_S = 3.0
"""Ingest speaks every second; who is silent for so long is frozen, or gone."""

_MESSAGE_ITEMS = 256
_MESSAGE_BYTES = 4 * 1024 * 1024
_UNANSWERED = 2
# An answer may wait for a lock, and the items behind it must not wait for that.
_PATIENCE_S = 0.005
_PAUSES_S = (0.05, 1.0)

Dial = Callable[[Address], Any]


class Lane:
    """Keeps a stream to `address`, again after every break. Items that it cannot have answered go to `orphan`."""

    def __init__(
        self, address: Address, form: Form, *, dial: Dial, orphan: Callable[[Item], None], told: ToldClock, clock: Clock
    ) -> None:
        self.address = address
        self.is_up = False
        self._form = form
        self._dial = dial
        self._orphan = orphan
        self._told = told
        self._clock = clock
        self._channel: Any = None
        self._call: Any = None
        self._watching: asyncio.TimerHandle | None = None
        self._heard = 0.0
        self._number = 0
        self._unanswered = 0
        self._outbox: deque[Item] = deque()
        self._sent: dict[int, Item] = {}
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()

    @property
    def load(self) -> int:
        """Items that it has not had answered."""
        return len(self._outbox) + len(self._sent)

    def put(self, item: Item) -> None:
        """Have it sent."""
        self._outbox.append(item)
        self._wake.set()

    def held(self) -> Iterable[Item]:
        """The items that are not answered."""
        return [*self._outbox, *self._sent.values()]

    async def run(self, came_up: Callable[[], None]) -> None:
        """Serve until cancelled. `came_up` is called whenever it can take items again."""
        pause = _PAUSES_S[0]
        try:
            while True:
                self._channel = self._channel or self._dial(self.address)
                served = await self._serve(came_up)
                _raise_if_cancelled()
                pause = _PAUSES_S[0] if served else min(2 * pause, _PAUSES_S[1])
                await asyncio.sleep(pause)
        finally:
            await self._hang_up()

    async def _serve(self, came_up: Callable[[], None]) -> bool:
        """One stream, to its end. Whether it was one at all."""
        self._heard = self._clock.monotonic()
        self._call = self._form.opens(self._channel)(wait_for_ready=True)
        self._watch()
        writing: asyncio.Task[None] | None = None
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._hear(message)
                if writing is None:
                    writing = asyncio.create_task(self._write(), name="lane-write")
                    self.is_up = True
                    came_up()
        except grpc.aio.AioRpcError as error:
            log.debug("a stream to ingest broke off", extra={"address": str(self.address), "code": error.code().name})
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            if writing is not None:
                log.warning("ingest is silent", extra={"address": str(self.address)})
            await self._hang_up()
        finally:
            if self._watching is not None:
                self._watching.cancel()
            if writing is not None:
                writing.cancel()
            self._break()
        return writing is not None

    def _watch(self) -> None:
        """Cancel a call that is silent."""
        silent_s = self._clock.monotonic() - self._heard
        if silent_s >= SILENCE_S:
            self._call.cancel()
        else:
            self._watching = asyncio.get_running_loop().call_later(SILENCE_S - silent_s, self._watch)

    def _hear(self, message: Any) -> None:
        self._heard = self._clock.monotonic()
        self._told.learn(message.now_ms)
        for answer in message.items:
            item = self._sent.pop(answer.number, None)
            if item is None:
                continue
            if answer.HasField("response"):
                item.settle(answer.response)
            else:
                item.fail(from_status(answer.status))
        if message.items:
            self._unanswered = 0
            self._answered.set()

    async def _write(self) -> None:
        # The end of the call is the reader's to tell.
        with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._outbox:
                    await self._may_send()
                    message = self._message()
                    self._unanswered += 1
                    await self._call.write(message)

    async def _may_send(self) -> None:
        if self._unanswered < _UNANSWERED or not self._sent:
            return
        self._answered.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._answered.wait()

    def _message(self) -> Any:
        message = self._form.message()
        items = message.items
        room = _MESSAGE_BYTES
        while self._outbox and len(items) < _MESSAGE_ITEMS and (not items or self._outbox[0].size <= room):
            item = self._outbox.popleft()
            if item.is_over:
                continue
            room -= item.size
            self._number += 1
            self._sent[self._number] = item
            items.add(
                number=self._number,
                credentials=item.credentials,
                request=item.request,
                id=item.id,
                again=item.sent,
            )
            item.sent = True
        return message

    def _break(self) -> None:
        """The stream is over: what it has not had answered is for another, or for the next one."""
        self.is_up = False
        self._unanswered = 0
        left = [*self._sent.values(), *self._outbox]
        self._sent.clear()
        self._outbox.clear()
        for item in left:
            self._orphan(item)

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _raise_if_cancelled() -> None:
    """A cancellation that comes while a call of grpc begins is lost where that call fails at the same moment."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
