"""One NATS connection from its dial to its end.

It never reconnects by itself: a reconnecting nats-py client buffers publishes without bound, swallows cancellation and,
once closed, lets a fetch loop spin. A new session per connection has none of these states; `Bus` makes the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

log = logging.getLogger(__name__)

FAULTS = (OSError, TimeoutError, nats.errors.Error, asyncio.IncompleteReadError)
"""What any call on a connection may raise when NATS is away, slow or half set up."""

_DIAL_S = 2.0
_CLOSE_S = 2.0
_PING_S = 5
_FLUSH_S = 2.0


class Session:
    """A live connection. `closed` is set when it has died; events in `watchers` are set then too."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.closed = asyncio.Event()
        self.watchers: set[asyncio.Event] = set()

    @classmethod
    async def dial(cls, url: str, name: str) -> Session:
        """Connect. Raises one of FAULTS."""
        client = Client()
        session = cls(client)
        try:
            async with asyncio.timeout(_DIAL_S):
                await client.connect(
                    url,
                    name=name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=1,
                    ping_interval=_PING_S,
                    max_outstanding_pings=2,
                    flush_timeout=_FLUSH_S,
                    error_cb=_on_error,
                    closed_cb=session._on_closed,
                )
        except BaseException:
            await _close(client)
            raise
        # nats-py does not tell of its end where it had something to send over a broken connection: its close fails.
        reading = client._reading_task
        assert reading is not None, "it is connected"
        reading.add_done_callback(session._reads_no_more)
        return session

    async def subscribe(self, subject: str, handle: Callable[[bytes], Awaitable[None]]) -> Subscription:
        """Call `handle` for each message until the session or the subscription ends.

        What it raises is logged and the message dropped.
        """

        async def receive(message: Msg) -> None:
            try:
                await handle(message.data)
            except Exception:
                log.exception("a hint could not be handled", extra={"subject": message.subject})

        return await self.client.subscribe(subject, cb=receive)

    def publish_now(self, subject: str, data: bytes, headers: Mapping[str, str]) -> bool:
        """Write a message, in this pass of the loop: nats-py does it two passes later. False: something else waits to
        be written, or it cannot be.
        """
        client = self.client
        writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
        if writer is None or not client.is_connected or getattr(client, "_pending", True):
            return False
        if not all(map(str.isprintable, headers.values())):
            return False  # what came from outside is nothing that ends a header: nats-py cleans it
        if writer.transport.is_closing() or writer.transport.get_write_buffer_size() > 0:
            return False
        writer.write(_message(subject, data, headers))
        return True

    async def close(self) -> None:
        """End it, within two seconds even if the server hangs."""
        await _close(self.client)
        await self._on_closed()

    def _reads_no_more(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled() and (error := reading.exception()) is not None:
            log.debug("nats: %s", error, exc_info=error)
        self._end()

    async def _on_closed(self) -> None:
        self._end()

    def _end(self) -> None:
        self.closed.set()
        for watcher in self.watchers:
            watcher.set()


def _message(subject: str, data: bytes, headers: Mapping[str, str]) -> bytes:
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject.encode(), len(head), len(head) + len(data), head, data)


async def _on_error(error: Exception) -> None:
    log.debug("nats: %s", error, exc_info=error)


async def _close(client: Client) -> None:
    with contextlib.suppress(*FAULTS):
        async with asyncio.timeout(_CLOSE_S):
            await client.close()
    transport: Any = getattr(client, "_transport", None)
    if transport is not None:  # a client that failed halfway does not close its socket itself
        transport.close()
