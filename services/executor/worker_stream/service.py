"""The gRPC face of the worker stream: reads, writes and beats; what the messages mean is the session's business."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from runr.workflows.v1 import worker_service_pb2 as pb
from runr.workflows.v1 import worker_service_pb2_grpc

from services.core.domain.errors import Unavailable
from services.core.rpc.server import Registration
from services.core.runtime.clock import Clock
from services.executor.worker_stream.entries import entry
from services.executor.worker_stream.handshake import DEAD_AFTER_S, HEARTBEAT_S, Handshake, Refused, Welcome, new_nonce
from services.executor.worker_stream.invocation import weight
from services.executor.worker_stream.outbox import Outbox
from services.executor.worker_stream.recalls import Recalls
from services.executor.worker_stream.session import MAX_CREDITS, WorkerSession
from services.executor.worker_stream.sessions import MAX_SESSIONS, TooManyWorkers, WorkerSessions

log = logging.getLogger(__name__)

_HELLO_S = 10.0
_AT_ONCE = 256
_NOT_READING_S = 60.0


class WorkerService(worker_service_pb2_grpc.WorkerServiceServicer):
    """See `proto/runr/workflows/v1/worker_service.proto`."""

    def __init__(self, sessions: WorkerSessions, handshake: Handshake, recalls: Recalls, clock: Clock) -> None:
        self._sessions = sessions
        self._recalls = recalls
        self._handshake = handshake
        self._clock = clock

    @property
    def registration(self) -> Registration:
        """How a server takes it in."""
        return _add_to_server, self

    async def Connect(self, request_iterator: AsyncIterator[pb.ConnectRequest], context: Any) -> AsyncIterator[bytes]:
        """One stream of one worker. Its answers are messages of the type ConnectResponse, as bytes."""
        challenge = new_nonce()
        yield entry(pb.EngineMessage(challenge=pb.Challenge(nonce=challenge)))
        try:
            welcome, rest = await self._meet(request_iterator, challenge)
            session = self._session_of(welcome)
        except Refused as refusal:
            yield _goodbye(refusal.reason, str(refusal))
            return
        except Unavailable:
            yield _goodbye("UNAVAILABLE", "the database is away: try again")
            return
        outbox = Outbox()
        outbox.put(pb.EngineMessage(hello_ack=welcome.ack))
        session.attach(outbox, welcome.credits, resuming=welcome.resuming, brings=welcome.brings)
        self._sessions.serve(session, welcome.workflows, welcome.workflow_ids)
        shown = {"node": welcome.node, "project": welcome.project.slug}
        log.info("a worker is connected", extra=shown)
        heard = _Hearing(session, outbox, self._clock, self._sessions, self._recalls)
        hearing = asyncio.create_task(heard.run(request_iterator, rest))
        try:
            while message := await outbox.take():
                session.was_read()
                yield message
        finally:
            hearing.cancel()
            session.detach(outbox)
            outbox.close()
            log.info("a worker's stream has ended", extra=shown)

    def _session_of(self, welcome: Welcome) -> WorkerSession:
        if self._sessions.draining:  # has begun meanwhile, and told everybody who was there
            raise Refused("SHUTDOWN", "this executor is being stopped")
        try:
            return self._sessions.meet(
                welcome.session, tenant=welcome.project.tenant, project=welcome.project.id, node=welcome.node
            )
        except TooManyWorkers:
            raise Refused("TOO_MANY_WORKERS", f"{MAX_SESSIONS} workers of this project are connected here") from None

    async def _meet(
        self, requests: AsyncIterator[pb.ConnectRequest], challenge: str
    ) -> tuple[Welcome, Sequence[pb.WorkerMessage]]:
        """The worker, and what came together with its Hello. Raises Refused, Unavailable."""
        if self._sessions.draining:
            raise Refused("SHUTDOWN", "this executor is being stopped")
        try:
            async with asyncio.timeout(_HELLO_S):
                request = await anext(requests, None)
        except TimeoutError:
            raise Refused("INVALID_HELLO", f"no Hello within {_HELLO_S:g} s") from None
        if request is None or not request.messages or request.messages[0].WhichOneof("kind") != "hello":
            raise Refused("INVALID_HELLO", "the first message of a worker is Hello")
        welcome = await self._handshake.welcome(request.messages[0].hello, challenge)
        return welcome, request.messages[1:]


class Misbehaved(Exception):
    """The worker says what no worker may say; the text tells what."""


class _Hearing:
    """What a worker says after its handshake, for as long as it can be heard."""

    def __init__(
        self, session: WorkerSession, outbox: Outbox, clock: Clock, sessions: WorkerSessions, recalls: Recalls
    ) -> None:
        self._sessions = sessions
        self._recalls = recalls
        self._session = session
        self._outbox = outbox
        self._clock = clock
        self._heard = clock.monotonic()
        self._reads = True
        self._has_resumed = False

    async def run(self, requests: AsyncIterator[pb.ConnectRequest], first: Sequence[pb.WorkerMessage]) -> None:
        """Until the worker leaves or falls silent; the stream ends with it."""
        beating = asyncio.create_task(self._beat(), name="worker-beat")
        reading = asyncio.create_task(self._read(requests, first), name="worker-read")
        try:
            await asyncio.wait({beating, reading}, return_when=asyncio.FIRST_COMPLETED)
            self._judge(reading)
        finally:
            self._outbox.close()
            for task in (beating, reading):
                task.cancel()

    def _judge(self, reading: asyncio.Task[None]) -> None:
        if not reading.done() or reading.cancelled() or (error := reading.exception()) is None:
            return
        if isinstance(error, Misbehaved):
            self._outbox.put(pb.EngineMessage(goodbye=pb.Goodbye(reason="PROTOCOL_ERROR", message=str(error))))
        else:
            log.error("a worker's stream failed", exc_info=error)

    async def _read(self, requests: AsyncIterator[pb.ConnectRequest], messages: Sequence[pb.WorkerMessage]) -> None:
        await self._receive_all(messages)
        async for request in requests:
            self._heard = self._clock.monotonic()
            await self._receive_all(request.messages)

    async def _receive_all(self, messages: Sequence[pb.WorkerMessage]) -> None:
        for start in range(0, len(messages), _AT_ONCE):
            size = sum(map(self._receive, messages[start : start + _AT_ONCE]))
            # While it is not read, a worker is not silent.
            self._reads = False
            await self._session.took_in(size)
            await self._outbox.room()
            self._reads = True
            self._heard = self._clock.monotonic()

    async def _beat(self) -> None:
        taken, stands_still = 0, 0.0
        while stands_still < _NOT_READING_S and (not self._reads or self._silence < DEAD_AFTER_S):
            await asyncio.sleep(HEARTBEAT_S)
            stands_still = stands_still + HEARTBEAT_S if self._outbox.waits and self._outbox.taken == taken else 0.0
            taken = self._outbox.taken
            self._outbox.put(pb.EngineMessage(heartbeat=pb.Heartbeat()))

    @property
    def _silence(self) -> float:
        return self._clock.monotonic() - self._heard

    def _receive(self, message: pb.WorkerMessage) -> int:
        """Take one message in; the bytes of ops that wait now. Unknown kinds are ignored (S8)."""
        match message.WhichOneof("kind"):
            case "op":
                op = message.op
                invocation = self._session.find(op.key)
                if invocation is None:
                    self._session.abandoned(op)
                elif invocation.arrived(op, self._heard):
                    return weight(op.op)
            case "end":
                invocation = self._session.find(message.end.key)
                if invocation is not None:
                    invocation.end(again=message.end.again)
            case "credits":
                self._session.grant(max(0, message.credits.add))
            case "resume":
                self._resume(message.resume)
            case "bring":
                self._take_in(message.bring)
            case "drain":
                self._session.drain()
        return 0

    def _resume(self, resume: pb.Resume) -> None:
        if self._has_resumed:
            raise Misbehaved("a second Resume on one stream")
        if len(resume.items) > MAX_CREDITS:
            raise Misbehaved(f"a Resume of {len(resume.items)} invocations: at most {MAX_CREDITS}")
        self._has_resumed = True
        self._sessions.bring(self._session, self._session.resume(resume))

    def _take_in(self, message: pb.Bring) -> None:
        if self._session.is_resuming:
            raise Misbehaved("a Bring before the Resume")
        if len(message.items) + len(message.unknown) > MAX_CREDITS:
            raise Misbehaved(f"a Bring of more than {MAX_CREDITS} invocations")
        if self._sessions.is_bringing_too_much(self._session):
            raise Misbehaved("one Bring after another, without waiting for any answer")
        self._sessions.bring(self._session, self._session.bring(message.items))
        self._recalls.never_begun(self._session, message.unknown)


def _goodbye(reason: str, message: str) -> bytes:
    return entry(pb.EngineMessage(goodbye=pb.Goodbye(reason=reason, message=message)))


def _add_to_server(servicer: WorkerService, server: Any) -> None:
    """As the generated function, but answers are bytes."""
    connect = grpc.stream_stream_rpc_method_handler(servicer.Connect, pb.ConnectRequest.FromString)
    service = pb.DESCRIPTOR.services_by_name["WorkerService"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Connect": connect}),))
    server.add_registered_method_handlers(service, {"Connect": connect})
