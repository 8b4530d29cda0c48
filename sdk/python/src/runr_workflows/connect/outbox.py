"""What a worker has to say on one stream: messages collect here while the one before them is being written."""

from __future__ import annotations

import asyncio
from collections import deque

from runr.workflows.v1 import worker_service_pb2 as pb

from .live_invocation import Key, LiveOp

_MESSAGE_BYTES = 1024 * 1024
"""When a message of the stream holds this much, what is left waits for the next one."""

_Item = pb.WorkerMessage | tuple[Key, LiveOp]


class Outbox:
    """A queue between many invocations and the one writer of a stream; never blocks who puts something in.

    Ops wait in it while more than `max_unacked_bytes` of them are not acknowledged; a single one is always sent.
    """

    def __init__(self, max_unacked_bytes: int) -> None:
        self._max_unacked_bytes = max_unacked_bytes
        self._ready: deque[_Item] = deque()
        self._held_back: deque[tuple[Key, LiveOp]] = deque()
        self._unacked_bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._is_closed = False

    def put(self, message: pb.WorkerMessage) -> None:
        """Sends this after everything that is ready. What is put after `close` is dropped."""
        if not self._is_closed:
            self._ready.append(message)
            self._look()

    def send_op(self, key: Key, op: LiveOp) -> None:
        """As `Outlet.send_op`."""
        if self._held_back or (self._unacked_bytes and self._unacked_bytes + len(op.text) > self._max_unacked_bytes):
            self._held_back.append((key, op))
            return
        self.count(op)
        if not self._is_closed:
            self._ready.append((key, op))
            self._look()

    def send_end(self, key: Key, *, again: bool = False) -> None:
        """As `Outlet.send_end`. Every op of the invocation is acknowledged, so none is held back."""
        message = pb.WorkerMessage()
        message.end.again = again
        write_key(message.end.key, key)
        self.put(message)

    def settled(self, op: LiveOp) -> None:
        """As `Outlet.settled`."""
        if op.counted:
            op.counted = False
            self._unacked_bytes -= len(op.text)
            if self._held_back:
                self._release()
        else:
            self._held_back = deque(item for item in self._held_back if item[1] is not op)

    def count(self, op: LiveOp) -> None:
        """The op is sent by other means, in a Resume."""
        op.counted = True
        self._unacked_bytes += len(op.text)

    def close(self) -> None:
        """Takes nothing more; what is ready is still given out."""
        self._is_closed = True
        self._look()

    async def take(self) -> pb.ConnectRequest | None:
        """Everything that is ready, as much as one message should hold; None once it is closed and all is given out."""
        while not self._ready:
            if self._is_closed:
                return None
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        request, size = pb.ConnectRequest(), 0
        while self._ready and size < _MESSAGE_BYTES:
            size += _write(request.messages.add(), self._ready.popleft())
        return request

    def _release(self) -> None:
        while self._held_back and not self._is_closed:
            size = len(self._held_back[0][1].text)
            if self._unacked_bytes and self._unacked_bytes + size > self._max_unacked_bytes:
                return
            item = self._held_back.popleft()
            self.count(item[1])
            self._ready.append(item)
            self._look()

    def _look(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)


def write_key(message: pb.InvocationKey, key: Key) -> None:
    """Fills in a key."""
    message.run_id, message.epoch, message.invocation = key


def write_op(message: pb.Op, key: Key, op: LiveOp) -> None:
    """Fills in an op."""
    write_key(message.key, key)
    message.number = op.number
    message.op = op.text
    if op.last:
        message.last = True


def _write(message: pb.WorkerMessage, item: _Item) -> int:
    """Fills in a message; returns about how many bytes it takes."""
    if isinstance(item, tuple):
        write_op(message.op, *item)
        return len(item[1].text)
    message.CopyFrom(item)
    return int(item.ByteSize())
