"""What an executor has to say to one worker: messages collect here while the ones before them are being written."""

from __future__ import annotations

import asyncio

from runr.workflows.v1 import worker_service_pb2 as pb

from services.executor.worker_stream.entries import entry

_MAX_BYTES = 4 * 1024 * 1024
_MAX_WAITING_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 48
"""What a message takes here beside its bytes."""


class Outbox:
    """A queue between many invocations and the one writer of a stream. Never blocks who puts something in."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._closed = False
        self._drained = asyncio.Event()
        self.taken = 0
        """How many times messages were taken: that it stands still while some wait says that nobody reads."""

    def put(self, message: pb.EngineMessage) -> None:
        """Send this after everything before it. What is put after `close` is dropped: nobody reads it."""
        self.put_entry(entry(message))

    def put_entry(self, message: bytes) -> None:
        """The same of a message as `entries` writes it."""
        if self._closed:
            return
        if not self._entries:
            self._wake.set()
        self._entries.append(message)
        self._waiting_bytes += len(message) + _ENTRY_BYTES

    def close(self) -> None:
        """Take nothing more; what is in is still given out."""
        self._closed = True
        self._wake.set()
        self._drained.set()

    @property
    def waits(self) -> bool:
        """Whether something is in."""
        return bool(self._entries)

    @property
    def is_full(self) -> bool:
        """Whether too much is in that nobody has read."""
        return self._waiting_bytes > _MAX_WAITING_BYTES

    async def room(self) -> None:
        """Wait while too much is in that nobody has read. Whoever answers what a worker may say at will asks for it."""
        while self.is_full and not self._closed:
            self._drained.clear()
            await self._drained.wait()

    async def take(self) -> bytes:
        """A message of the stream: everything that waits, as much as one should hold; empty once closed and given
        out.
        """
        while not self._entries and not self._closed:
            self._wake.clear()
            await self._wake.wait()
        count = len(self._entries) if self._waiting_bytes <= _MAX_BYTES else self._fitting()
        taken = self._entries[:count]
        del self._entries[:count]
        message = b"".join(taken)
        self._waiting_bytes -= len(message) + _ENTRY_BYTES * count
        self.taken += 1
        self._drained.set()
        return message

    def _fitting(self) -> int:
        size = count = 0
        while count < len(self._entries) and size < _MAX_BYTES:
            size += len(self._entries[count]) + _ENTRY_BYTES
            count += 1
        return count
