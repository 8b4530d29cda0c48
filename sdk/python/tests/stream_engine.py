"""The other side of the worker stream, by script: a real gRPC server that a test tells what to say, message by message.

It knows the protocol (`worker_service.proto`) and nothing of the SDK.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
from runr.workflows.v1 import worker_service_pb2 as pb
from runr.workflows.v1 import worker_service_pb2_grpc

from sdk.python.tests.engine import KEY, RUN_ID, execute_request

CHALLENGE = "challenge-of-this-stream"
PATIENCE_S = 10.0
_BIG = 64 * 1024 * 1024
_END = object()


def sign(key: str, *lines: str) -> str:
    """A signature of the handshake."""
    return hmac.new(key.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()


@dataclass
class Manners:
    """How the engine treats the next streams."""

    key: str = KEY
    heartbeat_ms: int = 5000
    dead_after_ms: int = 15_000
    max_unacked_bytes: int = 0
    goodbye: tuple[str, str] | None = None
    sign_with: str | None = None
    beats: bool = True
    warnings: Sequence[str] = ()
    features: Sequence[str] = ("resume",)


@dataclass(frozen=True)
class SentOp:
    """An op as it came."""

    message: pb.Op

    @property
    def fields(self) -> dict[str, Any]:
        """The op of protocol v1."""
        op: dict[str, Any] = json.loads(self.message.op)
        return op

    @property
    def id(self) -> str:
        """The step's id, or the kind of a run's end."""
        return str(self.fields.get("id", self.fields["op"]))

    @property
    def last(self) -> bool:
        """Whether the invocation ends with it."""
        return self.message.last

    @property
    def number(self) -> int:
        """Its number within the invocation."""
        return self.message.number


@dataclass
class EngineStream:
    """One stream that a worker has opened. Messages of the worker are awaited in the order of their arrival."""

    hello: pb.Hello
    context: Any
    inbox: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    outgoing: asyncio.Queue[pb.ConnectResponse | None] = field(default_factory=asyncio.Queue)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    beats: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[int] = field(default_factory=list)
    """How many messages each message of the stream held."""

    def say(self, *messages: pb.EngineMessage) -> None:
        """Sends messages in one."""
        self.outgoing.put_nowait(pb.ConnectResponse(messages=messages))

    def execute(
        self,
        workflow: str,
        steps: Mapping[str, Any] | None = None,
        *,
        run_id: str = RUN_ID,
        epoch: int = 1,
        invocation: int = 1,
        open_steps: Sequence[str] = (),
        chunk: int = 1_000_000,
        traceparent: str = "",
        tracestate: str = "",
        **more: Any,
    ) -> pb.InvocationKey:
        """Sends an Execute, in parts of `chunk` bytes."""
        key = pb.InvocationKey(run_id=run_id, epoch=epoch, invocation=invocation)
        text = execute_request(workflow, steps, **more).replace(RUN_ID, run_id).encode()
        for at in range(0, len(text), chunk):
            part = pb.Execute(key=key, request_chunk=text[at : at + chunk], last=at + chunk >= len(text))
            if at == 0:
                part.workflow, part.request_bytes, part.traceparent = workflow, len(text), traceparent
                part.tracestate = tracestate
                part.open_steps.extend(open_steps)
            self.say(pb.EngineMessage(execute=part))
        return key

    def ack(
        self,
        op: SentOp,
        step: Mapping[str, Any] | None = None,
        *,
        outcome: int = 1,
        leave: int = 0,
        key: pb.InvocationKey | None = None,
    ) -> None:
        """Acknowledges an op."""
        text = None if step is None else json.dumps(step).encode()
        ack = pb.Ack(
            key=key or op.message.key,
            number=op.number,
            outcome=pb.AckOutcome.ValueType(outcome),
            yield_reason=pb.YieldReason.ValueType(leave),
            step=text,
        )
        self.say(pb.EngineMessage(ack=ack))

    def deliver(self, key: pb.InvocationKey, step_id: str, step: Mapping[str, Any]) -> None:
        """Sends the result of an open step."""
        self.say(pb.EngineMessage(delivery=pb.Delivery(key=key, step_id=step_id, step=json.dumps(step).encode())))

    async def next(self) -> pb.WorkerMessage:
        """The next message of the worker; heartbeats are left out."""
        async with asyncio.timeout(PATIENCE_S):
            message = await self.inbox.get()
        assert message is not _END, "the worker closed the stream"
        assert isinstance(message, pb.WorkerMessage)
        return message

    async def expect(self, kind: str) -> Any:
        """The next message, which is of this kind."""
        message = await self.next()
        assert message.WhichOneof("kind") == kind, message
        return getattr(message, kind)

    async def op(self) -> SentOp:
        """The next message, which is an op."""
        return SentOp(await self.expect("op"))

    async def ops(self, count: int) -> dict[str, SentOp]:
        """As many ops, by step id."""
        ops = [await self.op() for _ in range(count)]
        return {op.id: op for op in ops}

    async def heard(self) -> None:
        """Returns when the worker has acted on everything that was said before, by what it says to something else."""
        key = self.execute("not served", run_id="01J0000000000000000000PING")
        while (message := await self.next()).WhichOneof("kind") == "credits":
            pass  # a slot that became free meanwhile
        assert message.WhichOneof("kind") == "op", message
        op = SentOp(message.op)
        assert (op.message.key, op.id) == (key, "run_failed")
        self.ack(op)

    async def closed(self) -> None:
        """The worker closes its side, and says nothing before it."""
        async with asyncio.timeout(PATIENCE_S):
            assert await self.inbox.get() is _END

    async def left(self) -> None:
        """The worker is gone, whichever way, and has said nothing before it."""
        async with asyncio.timeout(PATIENCE_S):
            await self.ended.wait()
        assert self.is_silent() or self.inbox.get_nowait() is _END

    def is_silent(self) -> bool:
        """Whether nothing has arrived that was not taken."""
        return self.inbox.empty()

    def drop(self) -> None:
        """Breaks the stream, as a network would."""
        self.outgoing.put_nowait(None)


class StreamEngine(worker_service_pb2_grpc.WorkerServiceServicer):
    """A server on a loopback port. `manners` may be changed between streams."""

    def __init__(self, manners: Manners | None = None, credentials: grpc.ServerCredentials | None = None) -> None:
        self.manners = manners or Manners()
        self._credentials = credentials
        self.refused: list[pb.Hello] = []
        self._accepted: asyncio.Queue[EngineStream] = asyncio.Queue()
        self._server: Any = None
        self.url = ""

    async def __aenter__(self) -> Self:
        options = (("grpc.max_receive_message_length", _BIG), ("grpc.max_send_message_length", _BIG))
        self._server = grpc.aio.server(options=(*options, ("grpc.so_reuseport", 0)))
        worker_service_pb2_grpc.add_WorkerServiceServicer_to_server(self, self._server)
        if self._credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", self._credentials)
        self.url = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._server.stop(None)

    async def accept(self) -> EngineStream:
        """The next stream whose handshake is done."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._accepted.get()

    async def Connect(self, request_iterator: Any, context: Any) -> None:
        """Handshake, then what the test says."""
        manners = self.manners
        unknown = pb.EngineMessage.FromString(b"\xf2\x07\x02hi")  # field 126: of a newer protocol
        challenge = pb.EngineMessage(challenge=pb.Challenge(nonce=CHALLENGE))
        await context.write(pb.ConnectResponse(messages=[unknown, challenge]))
        first = await context.read()
        hello = first.messages[0].hello
        goodbye = manners.goodbye or self._judge(hello, manners)
        if goodbye is not None:
            self.refused.append(hello)
            message = pb.EngineMessage(goodbye=pb.Goodbye(reason=goodbye[0], message=goodbye[1]))
            await context.write(pb.ConnectResponse(messages=[message]))
            return
        stream = EngineStream(hello, context)
        ack = self._welcome(hello, manners)
        await context.write(pb.ConnectResponse(messages=[pb.EngineMessage(hello_ack=ack)]))
        for message in first.messages[1:]:
            stream.inbox.put_nowait(message)
        self._accepted.put_nowait(stream)
        reading = asyncio.create_task(_read(stream))
        beating = asyncio.create_task(_beat(stream, manners))
        try:
            while (response := await stream.outgoing.get()) is not None:
                await context.write(response)
        finally:
            reading.cancel()
            beating.cancel()
            stream.ended.set()
        if not reading.done() or reading.cancelled():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the network broke")

    def _judge(self, hello: pb.Hello, manners: Manners) -> tuple[str, str] | None:
        lines = (CHALLENGE, hello.nonce, hello.tenant, hello.project, hello.session, hello.definitions_hash)
        if hello.signature != sign(manners.key, "runr-worker-v1", *lines):
            return "UNAUTHENTICATED", "the signature is by no key of the project"
        assert hello.protocol == 1
        assert hello.definitions_hash == hashlib.sha256(hello.definitions).hexdigest()
        return None

    def _welcome(self, hello: pb.Hello, manners: Manners) -> pb.HelloAck:
        key = manners.sign_with or manners.key
        ack = pb.HelloAck(
            protocol=1,
            features=manners.features,
            engine_version="0",
            max_unacked_bytes=manners.max_unacked_bytes,
            warnings=manners.warnings,
            signature=sign(key, "runr-engine-v1", CHALLENGE, hello.nonce, hello.session),
        )
        ack.heartbeat_interval.FromMilliseconds(manners.heartbeat_ms)
        ack.dead_after.FromMilliseconds(manners.dead_after_ms)
        return ack


async def _read(stream: EngineStream) -> None:
    while (request := await stream.context.read()) is not grpc.aio.EOF:
        stream.requests.append(len(request.messages))
        for message in request.messages:
            if message.WhichOneof("kind") == "heartbeat":
                stream.beats.set()
            else:
                stream.inbox.put_nowait(message)
    stream.inbox.put_nowait(_END)
    stream.outgoing.put_nowait(None)


async def _beat(stream: EngineStream, manners: Manners) -> None:
    while manners.beats:
        await asyncio.sleep(manners.heartbeat_ms / 1000)
        stream.say(pb.EngineMessage(heartbeat=pb.Heartbeat()))
