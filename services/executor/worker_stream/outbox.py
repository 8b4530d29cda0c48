"""What an executor has to say to one worker: messages collect here while the ones before them are being written."""

from __future__ import annotations

import asyncio

from runr.workflows.v1 import worker_service_pb2 as pb

_MAX_BYTES = 4 * 1024 * 1024
_MAX_WAITING_BYTES = 16 * 1024 * 1024
_PLAIN_BYTES = 64
"""About what a message without a payload takes."""


class Outbox:
    """A queue between many invocations and the one writer of a stream. Never blocks who puts something in."""

    def __init__(self) -> None:
        self._messages: list[pb.EngineMessage] = []
        self._sizes: list[int] = []
        self._wake = asyncio.Event()
        self._closed = False
        self._waiting_bytes = 0
        self._drained = asyncio.Event()
        self.taken = 0
        """How many times messages were taken: that it stands still while some wait says that nobody reads."""

    def put(self, message: pb.EngineMessage, payload_bytes: int = 0) -> None:
        """Send this after everything before it. What is put after `close` is dropped: nobody reads it."""
        if self._closed:
            return
        self._messages.append(message)
        self._sizes.append(payload_bytes + _PLAIN_BYTES)
        self._waiting_bytes += self._sizes[-1]
        self._wake.set()

    def close(self) -> None:
        """Take nothing more; what is in is still given out."""
        self._closed = True
        self._wake.set()
        self._drained.set()

    @property
    def waits(self) -> bool:
        """Whether something is in."""
        return bool(self._messages)

    @property
    def is_full(self) -> bool:
        """Whether too much is in that nobody has read."""
        return self._waiting_bytes > _MAX_WAITING_BYTES

    async def room(self) -> None:
        """Wait while too much is in that nobody has read. Whoever answers what a worker may say at will asks for it."""
        while self.is_full and not self._closed:
            self._drained.clear()
            await self._drained.wait()

    async def take(self) -> list[pb.EngineMessage]:
        """Everything that waits, as much as one message of the stream should hold; empty once closed and given out."""
        while not self._messages and not self._closed:
            self._wake.clear()
            await self._wake.wait()
        size = count = 0
        while count < len(self._sizes) and size < _MAX_BYTES:
            size += self._sizes[count]
            count += 1
        taken = self._messages[:count]
        del self._messages[:count], self._sizes[:count]
        self._waiting_bytes -= size
        self.taken += 1
        self._drained.set()
        return taken
