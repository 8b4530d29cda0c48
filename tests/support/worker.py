"""A worker of user code, played by hand over a real stream to a real executor."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from runr.workflows.v1 import worker_service_pb2 as pb
from runr.workflows.v1 import worker_service_pb2_grpc

from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.signing_keys import open_keys
from services.core.engine.sync import Syncer
from services.core.rpc.channel import open_channel
from services.core.rpc.server import RpcServer
from services.core.runtime.clock import SystemClock
from services.core.runtime.parse import Address
from services.core.runtime.sealing import Sealer
from services.core.runtime.telemetry import Telemetry
from services.core.store.database import Database
from services.core.store.projects import get_project
from services.executor.incarnation import Incarnation
from services.executor.worker_stream.handshake import Handshake
from services.executor.worker_stream.recalls import Recalls
from services.executor.worker_stream.service import WorkerService
from services.executor.worker_stream.sessions import WorkerSessions
from tests.support.engine import ScriptedFunctions, living, make_incarnation
from tests.support.grpc_backend import LOOPBACK, TwoTokens, serving
from tests.support.tenancy import ENCRYPTION_KEY

GUARD_S = 15.0


@dataclass(frozen=True)
class Door:
    """Where workers of a project connect, and its signing key."""

    address: Address
    key: str


@dataclass(frozen=True)
class StreamExecutor(Door):
    """An executor that workers can connect to."""

    database: Database
    sessions: WorkerSessions
    recalls: Recalls
    incarnation: Incarnation


@contextlib.asynccontextmanager
async def stream_executor(
    database: Database,
    tenant: int,
    *,
    resume_grace_s: float = 5.0,
    request_timeout_s: float = 30.0,
    functions: ScriptedFunctions | None = None,
    **options: Any,
) -> AsyncIterator[StreamExecutor]:
    """An executor with its gRPC face, over the tenant's project `default`; `functions` answer over HTTP."""
    clock = SystemClock()
    sealer = Sealer(ENCRYPTION_KEY)
    definitions = DefinitionsCache(sealer)
    sessions = WorkerSessions(clock, request_timeout_s=request_timeout_s, resume_grace_s=resume_grace_s)
    recalls = Recalls(database, sessions, Hints(options.get("publisher") or NullPublisher()))
    handshake = Handshake(database, definitions, Syncer(database, lambda _: None))
    server = RpcServer(
        LOOPBACK,
        [WorkerService(sessions, handshake, recalls, clock).registration],
        authenticator=TwoTokens(),
        telemetry=Telemetry.off(),
    )
    incarnation = make_incarnation(
        database, functions or ScriptedFunctions({}), definitions=definitions, sessions=sessions, **options
    )
    sessions.adopt_with(incarnation.adopt)
    async with database.connection() as connection:
        keys = open_keys(sealer, await get_project(connection, tenant, "default"), 0)
    assert keys is not None
    async with serving(server), living(incarnation):
        looks = [asyncio.create_task(each.run()) for each in (sessions, recalls)]
        try:
            yield StreamExecutor(server.address, keys.current, database, sessions, recalls, incarnation)
        finally:
            await sessions.drain()
            for look in looks:
                look.cancel()


class HandWorker:
    """One stream of a worker. Everything that comes is kept in order, by kind."""

    def __init__(self, door: Door, session: str, call: Any, challenge: str) -> None:
        self.session = session
        self._door = door
        self._call = call
        self._challenge = challenge
        self._heard: list[pb.EngineMessage] = []
        self._changed = asyncio.Condition()
        self.ended = asyncio.Event()

    async def hello(self, workflows: Sequence[Mapping[str, Any]], **fields: Any) -> None:
        """Say Hello, signed with the project's key unless `key` says otherwise."""
        key = fields.pop("key", self._door.key)
        text = json.dumps({"runr_workflow": "v1", "sdk": {"name": "hand"}, "workflows": list(workflows)}).encode()
        hello = pb.Hello(
            protocol=1,
            session=self.session,
            tenant="default",
            project="default",
            nonce=uuid.uuid4().hex,
            definitions=text,
            definitions_hash=hashlib.sha256(text).hexdigest(),
            node="hand",
            credits=10,
        )
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(hello, name).extend(value)
            else:
                setattr(hello, name, value)
        hello.signature = hello.signature or sign(
            key,
            "runr-worker-v1",
            self._challenge,
            hello.nonce,
            hello.tenant,
            hello.project,
            hello.session,
            hello.definitions_hash,
        )
        self.nonce = hello.nonce
        await self.say(pb.WorkerMessage(hello=hello))

    async def say(self, *messages: pb.WorkerMessage) -> None:
        """Send these in one message of the stream."""
        await self._call.write(pb.ConnectRequest(messages=messages))

    async def op(self, key: pb.InvocationKey, number: int, op: Mapping[str, Any], *, last: bool = False) -> None:
        """Report one op."""
        await self.say(reported(key, number, op, last=last))

    async def end(self, key: pb.InvocationKey, *, again: bool = False) -> None:
        """Nothing is left to do, or, `again`, nothing without a new invocation."""
        await self.say(pb.WorkerMessage(end=pb.InvocationEnd(key=key, again=again)))

    async def next(self, kind: str, *, guard_s: float | None = GUARD_S) -> Any:
        """The next message of this kind that was not asked for yet."""
        async with asyncio.timeout(guard_s), self._changed:
            await self._changed.wait_for(lambda: self._place(kind) is not None)
            place = self._place(kind)
            assert place is not None
            return getattr(self._heard.pop(place), kind)

    def heard(self, kind: str) -> int:
        """How many messages of this kind wait."""
        return sum(each.WhichOneof("kind") == kind for each in self._heard)

    async def execute(self, *, guard_s: float | None = GUARD_S) -> tuple[pb.Execute, dict[str, Any]]:
        """The next invocation: its first part, and the request."""
        first = part = await self.next("execute", guard_s=guard_s)
        text = part.request_chunk
        while not part.last:
            part = await self.next("execute")
            text += part.request_chunk
        assert len(text) == first.request_bytes
        return first, json.loads(text)

    async def ack(self) -> pb.Ack:
        """The next acknowledgement."""
        ack: pb.Ack = await self.next("ack")
        return ack

    def cut(self) -> None:
        """Lose the stream."""
        self._call.cancel()

    async def listen(self) -> None:
        """Keep what comes, until the stream ends."""
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                await self._keep(response.messages)
        except (asyncio.CancelledError, grpc.RpcError):
            pass
        finally:
            self.ended.set()

    async def _keep(self, messages: Sequence[pb.EngineMessage]) -> None:
        async with self._changed:
            self._heard.extend(messages)
            self._changed.notify_all()

    def _place(self, kind: str) -> int | None:
        return next((at for at, each in enumerate(self._heard) if each.WhichOneof("kind") == kind), None)


@contextlib.asynccontextmanager
async def stranger(door: Door, session: str | None = None) -> AsyncIterator[HandWorker]:
    """A stream on which the engine has said its Challenge and nothing else was said."""
    channel = open_channel(door.address)
    try:
        call = worker_service_pb2_grpc.WorkerServiceStub(channel).Connect()
        first = await asyncio.wait_for(call.read(), GUARD_S)
        worker = HandWorker(door, session or str(uuid.uuid4()), call, first.messages[0].challenge.nonce)
        listening = asyncio.create_task(worker.listen())
        yield worker
        call.cancel()
        await asyncio.wait({listening})
    finally:
        await channel.close()


@contextlib.asynccontextmanager
async def worker(door: Door, *workflows: str, **fields: Any) -> AsyncIterator[HandWorker]:
    """A worker that was taken in and serves these workflows. With a `session` it resumes, unless told not to."""
    session = fields.pop("session", None)
    fields = {"resuming": session is not None, **fields}
    async with stranger(door, session) as hand:
        await hand.hello([{"name": name} for name in workflows or ("work",)], **fields)
        await hand.next("hello_ack")
        yield hand


def reported(key: pb.InvocationKey, number: int, op: Mapping[str, Any], *, last: bool = False) -> pb.WorkerMessage:
    """An op as a message, in compact JSON."""
    text = json.dumps(op, separators=(",", ":")).encode()
    return pb.WorkerMessage(op=pb.Op(key=key, number=number, op=text, last=last))


def sign(key: str, *lines: str) -> str:
    """What both sides sign with."""
    return hmac.new(key.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()
