"""The bus: hints over NATS JetStream. Every message may be lost, so nothing here waits for NATS or fails because of it.

Publishing is a write where nothing waits to be written, else a put into a bounded outbox; while NATS is away, and when
the outbox is full, messages are dropped and counted. The connection is dialled again for as long as it takes;
subscriptions, the stream and its consumer are made anew each time, since a NATS that restarts has forgotten a stream in
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from nats.aio.subscription import Subscription

from services.core.bus import payload
from services.core.bus.session import FAULTS, Session
from services.core.bus.stream import ensure_ready_stream, pending_hints
from services.core.bus.subjects import Subjects, partition_of
from services.core.runtime.lifecycle import Component
from services.core.runtime.traceparent import headers

log = logging.getLogger(__name__)

T = TypeVar("T")

EndHearing = Callable[[], Awaitable[None]]
"""Ends a subscription, now and for every later connection. A second call does nothing."""

_FIRST_DIAL_S = 1.0
_RECHECK_S = 30.0
_PAUSES_S = (0.05, 1.0)
_DRAIN_S = 1.0


class _Outgoing(NamedTuple):
    subject: str
    data: bytes
    traceparent: str


class _Hearing:
    """A subscription that outlives connections."""

    def __init__(self, subject: str, receive: Callable[[bytes], Awaitable[None]]) -> None:
        self.session: Session | None = None
        """The connection that it was last made on."""
        self._subject = subject
        self._receive = receive
        self._live: Subscription | None = None
        self._ended = False

    async def begin(self, session: Session) -> None:
        """Subscribe on a connection. Raises one of FAULTS."""
        self.session = session
        self._live = await session.subscribe(self._subject, self._receive)
        if self._ended:
            await self.end()

    async def end(self) -> None:
        """Hear no more, on this connection and on later ones. A second call does nothing."""
        self._ended = True
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(*FAULTS):  # it is over with its connection
                await live.unsubscribe()


class Bus(Component):
    """One connection of this process to NATS. A `Publisher` of `services.core.engine.hints`."""

    name = "bus"

    def __init__(self, url: str, *, prefix: str = "runr", client_name: str = "runr", max_queued: int = 10_000) -> None:
        self.subjects = Subjects(prefix)
        self.dropped = 0
        self._url = url
        self._client_name = client_name
        self._max_queued = max_queued
        self._outbox: deque[_Outgoing] = deque()
        self._wake = asyncio.Event()
        self._recheck = asyncio.Event()
        self._connected = asyncio.Event()
        self._session: Session | None = None
        self._hearings: list[_Hearing] = []
        self._keeper: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def connected(self) -> bool:
        """Whether NATS is reachable now."""
        return self._session is not None

    async def start(self) -> None:
        """Begin to connect; waits a moment for it, and goes on without."""
        self._is_over = False
        self._keeper = asyncio.create_task(self._keep_connected(), name="bus-connection")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_DIAL_S):
                await self._connected.wait()

    async def run(self) -> None:
        """Watch the connection's keeper, which ends only by a bug."""
        assert self._keeper is not None
        await asyncio.shield(self._keeper)

    async def drain(self) -> None:
        """Send what is in the outbox, within a second."""
        session = self._session
        if session is None:
            return
        with contextlib.suppress(*FAULTS):
            async with asyncio.timeout(_DRAIN_S):
                while self._outbox and session is self._session:
                    await self._send_queued(session)
                await session.client.flush(1)

    async def stop(self) -> None:
        """Close. A second call does nothing."""
        self._is_over = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})

    def publish_ready(self, run_ids: Sequence[UUID], traceparent: str = "") -> None:
        """Hint that runs are ready, several in a message."""
        for runs in payload.in_pieces(run_ids):
            subject = self.subjects.ready(partition_of(runs[0]))
            self._publish(subject, payload.encode_ready(runs, traceparent), traceparent)

    def publish_cancel(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """Tell an owner that it holds these runs no more."""
        for start in range(0, len(run_ids), payload.MAX_RUNS):
            self._publish(self.subjects.cancel(owner), payload.encode_cancel(run_ids[start : start + payload.MAX_RUNS]))

    def publish_mail(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """Tell an owner that something was delivered to these runs of its own."""
        for start in range(0, len(run_ids), payload.MAX_RUNS):
            self._publish(self.subjects.mail(owner), payload.encode_mail(run_ids[start : start + payload.MAX_RUNS]))

    def publish_pool(self, workflows: Sequence[int]) -> None:
        """Tell all executors that these workflows, which only workers serve, have runs."""
        for start in range(0, len(workflows), payload.MAX_RUNS):
            self._publish(self.subjects.pool, payload.encode_pool(workflows[start : start + payload.MAX_RUNS]))

    def publish_timers(self, run_id: UUID, due_ms: Sequence[int]) -> None:
        """Tell schedulers when timers of a run are due."""
        self._publish(self.subjects.timer(partition_of(run_id)), payload.encode_timers(run_id, due_ms))

    def publish_defs(self, tenant: int) -> None:
        """Tell everybody that a tenant's definitions have changed."""
        self._publish(self.subjects.defs(tenant), payload.encode_defs(tenant))

    async def on_cancel(self, owner: int, handle: Callable[[tuple[UUID, ...]], Awaitable[None]]) -> EndHearing:
        """Call `handle` with the runs of each notice for `owner`, now and after every reconnect.

        What it answers ends that: an owner id is never used again, and a process may have had many.
        """
        return await self._subscribe(self.subjects.cancel(owner), payload.decode_cancel, handle)

    async def on_mail(self, owner: int, handle: Callable[[tuple[UUID, ...]], Awaitable[None]]) -> EndHearing:
        """Call `handle` with the runs of each notice of deliveries to `owner`; otherwise as `on_cancel`."""
        return await self._subscribe(self.subjects.mail(owner), payload.decode_mail, handle)

    async def on_pool(self, handle: Callable[[tuple[int, ...]], Awaitable[None]]) -> None:
        """Call `handle` with the workflows of each hint at runs that only workers serve."""
        await self._subscribe(self.subjects.pool, payload.decode_pool, handle)

    async def on_timers(self, handle: Callable[[tuple[tuple[UUID, int], ...]], Awaitable[None]]) -> None:
        """Call `handle` with each hint's pairs of run and due time (unix ms), of all partitions."""
        await self._subscribe(self.subjects.every_timer, payload.decode_timers, handle)

    async def on_defs(self, handle: Callable[[int], Awaitable[None]]) -> None:
        """Call `handle` with each tenant whose definitions changed."""
        await self._subscribe(self.subjects.every_defs, payload.decode_defs, handle)

    async def session(self) -> Session:
        """The live connection; waits for one."""
        while self._session is None:
            await self._connected.wait()
        return self._session

    async def pending(self) -> int | None:
        """Ready hints that no executor has taken yet; None while NATS cannot tell."""
        session = self._session
        if session is None:
            return None
        try:
            return await pending_hints(session.client, self.subjects)
        except FAULTS:
            self.look_again()
            return None

    def look_again(self) -> None:
        """The stream or its consumer seems to be gone: make sure of them soon."""
        self._recheck.set()

    def _publish(self, subject: str, data: bytes, traceparent: str = "") -> None:
        if self._session is None or len(self._outbox) >= self._max_queued:
            self.dropped += 1
            return
        if not self._outbox and self._session.publish_now(subject, data, headers(traceparent)):
            return
        self._outbox.append(_Outgoing(subject, data, traceparent))
        self._wake.set()

    async def _subscribe(
        self, subject: str, decode: Callable[[bytes], T], handle: Callable[[T], Awaitable[None]]
    ) -> EndHearing:
        async def receive(data: bytes) -> None:
            try:
                message = decode(data)
            except payload.BadPayload:
                log.warning("dropped a message that is no hint", extra={"subject": subject})
                return
            await handle(message)

        async def end() -> None:
            if hearing in self._hearings:
                self._hearings.remove(hearing)
            await hearing.end()

        hearing = _Hearing(subject, receive)
        self._hearings.append(hearing)
        if self._session is not None:
            with contextlib.suppress(*FAULTS):  # the next session subscribes
                await hearing.begin(self._session)
                await self._session.client.flush(1)
        return end

    async def _keep_connected(self) -> None:
        pause = _PAUSES_S[0]
        while not self._is_over:  # nats-py may swallow a cancellation while it dials
            try:
                session = await Session.dial(self._url, self._client_name)
            except FAULTS as error:
                if self._is_over:
                    return
                if pause == _PAUSES_S[0]:  # once, not at every try
                    log.warning("NATS is away: going on without hints", extra={"fault": type(error).__name__})
                await asyncio.sleep(pause)
                pause = min(pause * 2, _PAUSES_S[1])
                continue
            pause = _PAUSES_S[0]
            if self._is_over:
                await session.close()
                return
            await self._serve(session)

    async def _serve(self, session: Session) -> None:
        """Use a session until it ends."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            await self._hear(session)
            self._session = session
            self._connected.set()
            log.info("connected to NATS")
            tasks.add(asyncio.create_task(self._send(session), name="bus-send"))
            tasks.add(asyncio.create_task(self._keep_stream(session), name="bus-stream"))
            await session.closed.wait()
            log.warning("lost NATS")
        except FAULTS as error:
            log.warning("lost NATS", extra={"fault": type(error).__name__})
        finally:
            self._session = None
            self._connected.clear()
            self.dropped += len(self._outbox)
            self._outbox.clear()
            for task in tasks:
                task.cancel()
            await session.close()
            if tasks:  # nats-py may swallow a cancellation: the tasks also see that their session is over
                self._wake.set()
                self._recheck.set()
                await asyncio.wait(tasks)

    async def _hear(self, session: Session) -> None:
        """Subscribe on a new connection, also for those who come meanwhile. Raises one of FAULTS."""
        while True:
            for hearing in [each for each in self._hearings if each.session is not session]:
                await hearing.begin(session)
            await session.client.flush(1)
            if all(each.session is session for each in self._hearings):
                return

    async def _send(self, session: Session) -> None:
        while session is self._session:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_queued(session)
            except FAULTS:
                self.dropped += 1

    async def _send_queued(self, session: Session) -> None:
        while self._outbox and session is self._session:
            message = self._outbox.popleft()
            sent = dict(headers(message.traceparent)) or None
            await session.client.publish(message.subject, message.data, headers=sent)

    async def _keep_stream(self, session: Session) -> None:
        """Make sure of the stream and its consumer now, when somebody missed them, and every half minute."""
        missing = False
        while session is self._session:
            self._recheck.clear()
            try:
                await ensure_ready_stream(session.client, self.subjects)
            except FAULTS as error:
                if not missing:
                    log.warning("no stream for ready hints", extra={"fault": str(error) or type(error).__name__})
                missing = True
                await asyncio.sleep(1)
                continue
            missing = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RECHECK_S):
                    await self._recheck.wait()
