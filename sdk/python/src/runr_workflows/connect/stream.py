"""One stream to an executor: handshake, then messages both ways until one side ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration
from runr.workflows.v1 import worker_service_pb2 as pb
from runr.workflows.v1.worker_service_pb2_grpc import WorkerServiceStub

from .handshake import BRING, PROTOCOL, Introduction, is_engine
from .outbox import Outbox
from .target import Target

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
HANDSHAKE_S = 10.0
_CLOSE_S = 2.0
_HEARTBEAT_S = 5.0
_DEAD_AFTER_S = 15.0
_MAX_UNACKED_BYTES = 8 * 1024 * 1024
_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Each stream dials anew: when to try again is decided by `connection`, not by gRPC's own pauses.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)

Receive = Callable[["Stream", str | None, pb.EngineMessage], None]
"""Takes a message that came, with its kind."""


class StreamLost(Exception):
    """The stream could not be had, or broke. `status` is the gRPC status, if there is one."""

    def __init__(self, message: str, status: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.status = status


class SaidGoodbye(Exception):
    """The engine closed the stream and said why."""

    def __init__(self, goodbye: pb.Goodbye) -> None:
        super().__init__(goodbye.message)
        self.reason = goodbye.reason
        self.message = goodbye.message


class Impostor(Exception):
    """Whoever answered could not prove that it is the engine."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What was agreed on. Times are in seconds."""

    heartbeat_s: float
    dead_after_s: float
    max_unacked_bytes: int

    @classmethod
    def of(cls, ack: pb.HelloAck) -> Self:
        """The terms in the engine's answer; what it leaves out is the protocol's default."""
        return cls(
            _seconds(ack.heartbeat_interval) or _HEARTBEAT_S,
            _seconds(ack.dead_after) or _DEAD_AFTER_S,
            ack.max_unacked_bytes or _MAX_UNACKED_BYTES,
        )


class Stream:
    """A stream that the engine has accepted; `open_stream` makes one."""

    def __init__(self, channel: Any, call: Any, ack: pb.HelloAck, read: Sequence[pb.EngineMessage]) -> None:
        self.ack = ack
        self.terms = Terms.of(ack)
        self.brings = BRING in ack.features
        """Whether the engine takes a Bring."""
        self.outbox = Outbox(self.terms.max_unacked_bytes)
        self.is_draining = asyncio.Event()
        """Set when the engine asks for another stream."""
        self._channel = channel
        self._call = call
        self._read = list(read)
        self._has_heard = False
        self._has_said_all = False

    async def run(self, receive: Receive) -> None:
        """Sends and receives until the stream is closed from here and everything is said.

        Raises StreamLost or SaidGoodbye when it ends from the other side.
        """
        reading = asyncio.ensure_future(self._receive(receive))
        others = [asyncio.ensure_future(self._send()), asyncio.ensure_future(self._beat())]
        try:
            await asyncio.wait({reading, *others}, return_when=asyncio.FIRST_COMPLETED)
            if others[0].done() and not others[0].cancelled() and others[0].exception() is None:
                await asyncio.wait({reading}, timeout=_CLOSE_S)  # the engine takes note of what was said last
                return
            for task in (reading, *others):  # the reader first: it knows best why
                if task.done():
                    task.result()
            if not self._has_said_all:  # else the engine's end answers ours, and only came before our call returned
                raise StreamLost("the engine closed the stream")
        finally:
            for task in (reading, *others):
                task.cancel()
            await asyncio.gather(reading, *others, return_exceptions=True)
            await _hang_up(self._channel, self._call)

    def close(self) -> None:
        """Ends the stream once everything is said."""
        self.outbox.close()

    async def _receive(self, receive: Receive) -> None:
        messages: Sequence[pb.EngineMessage] | None = self._read
        while messages is not None:
            self._has_heard = True
            for message in messages:
                kind = message.WhichOneof("kind")
                if kind == "goodbye":
                    raise SaidGoodbye(message.goodbye)
                receive(self, kind, message)
            messages = await _read(self._call)

    async def _send(self) -> None:
        while (request := await self.outbox.take()) is not None:
            try:
                await self._call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                # Why is for the reader to say, which sees what the engine sent before it closed.
                await asyncio.sleep(_CLOSE_S)
                raise StreamLost("the stream broke") from error
        self._has_said_all = True
        await self._call.done_writing()

    async def _beat(self) -> None:
        """Counts beats without an answer, not time: a loop that was blocked has read nothing because of itself."""
        silent = 0.0
        while silent < self.terms.dead_after_s:
            await asyncio.sleep(self.terms.heartbeat_s)
            self.outbox.put(pb.WorkerMessage(heartbeat=pb.Heartbeat()))
            silent = 0.0 if self._has_heard else silent + self.terms.heartbeat_s
            self._has_heard = False
        raise StreamLost(f"the engine has been silent for {self.terms.dead_after_s:g} s")


async def open_stream(
    target: Target, introduction: Introduction, keys: Sequence[str], *, key: str, credits: int, resuming: bool
) -> Stream:
    """A stream whose Hello is signed with `key`; the engine may prove itself by any of `keys`.

    `resuming`: a Resume will follow the answer at once.

    Raises StreamLost, SaidGoodbye, or Impostor.
    """
    channel = _channel(target)
    call = WorkerServiceStub(channel).Connect()
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            challenge, rest = await _expect(call, "challenge", [])
            hello = introduction.hello(challenge.challenge.nonce, key, credits, resuming=resuming)
            await call.write(pb.ConnectRequest(messages=[pb.WorkerMessage(hello=hello)]))
            answer, rest = await _expect(call, "hello_ack", rest)
    except TimeoutError:
        await _hang_up(channel, call)
        raise StreamLost(f"no answer from {target} within {HANDSHAKE_S:g} s") from None
    except grpc.aio.AioRpcError as error:
        await _hang_up(channel, call)
        raise StreamLost(error.details() or str(error.code()), error.code()) from None
    except BaseException:
        await _hang_up(channel, call)
        raise
    ack = answer.hello_ack
    if not is_engine(ack, challenge.challenge.nonce, hello, keys):
        await _hang_up(channel, call)
        raise Impostor(f"what answers at {target} did not prove that it knows the project's signing key")
    if ack.protocol != PROTOCOL:
        await _hang_up(channel, call)
        raise StreamLost(f"the engine speaks version {ack.protocol} of the worker stream, this SDK {PROTOCOL}")
    return Stream(channel, call, ack, rest)


async def _expect(
    call: Any, kind: str, messages: Sequence[pb.EngineMessage] | None
) -> tuple[pb.EngineMessage, Sequence[pb.EngineMessage]]:
    """The first message of a kind, and what came after it. Others before it are ignored."""
    while messages is not None:
        for index, message in enumerate(messages):
            found = message.WhichOneof("kind")
            if found == "goodbye":
                raise SaidGoodbye(message.goodbye)
            if found == kind:
                return message, messages[index + 1 :]
        messages = await _read(call)
    raise StreamLost("the engine closed the stream during the handshake")


async def _read(call: Any) -> Sequence[pb.EngineMessage] | None:
    """The messages that came next; None when the engine has closed its side."""
    try:
        response = await call.read()
    except grpc.aio.AioRpcError as error:
        _raise_if_cancelled()
        raise StreamLost(error.details() or str(error.code()), error.code()) from None
    if response is grpc.aio.EOF:
        return None
    messages: Sequence[pb.EngineMessage] = response.messages
    return messages


def _raise_if_cancelled() -> None:
    """A cancellation that comes while a call of grpc begins is lost where that call fails at the same moment."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _channel(target: Target) -> Any:
    if target.tls is None:
        return grpc.aio.insecure_channel(str(target), options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(target.tls.ca, target.tls.key, target.tls.certificate)
    return grpc.aio.secure_channel(str(target), credentials, options=_OPTIONS)


async def _hang_up(channel: Any, call: Any) -> None:
    call.cancel()
    with contextlib.suppress(Exception):
        await channel.close()


def _seconds(duration: Duration) -> float:
    return float(duration.seconds + duration.nanos / 1e9)
