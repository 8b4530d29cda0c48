"""A project's queue stream in JetStream: a durable consumer that every replica pulls from, and dead letters.

Unlike hints these messages are somebody's data: each is acknowledged only when it is accepted or buried, and comes
again otherwise. The server counts deliveries and never gives up by itself; when to give up is decided by who consumes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from services.core.bus.pull import Pull
from services.core.bus.session import Session
from services.core.bus.subjects import Subjects

_TIMEOUT_S = 2.0
_BATCH = 64
_EXPIRES_S = 15.0
_MIN_PULL_BYTES = 4 << 20
_AROUND_BYTES = 64 << 10  # subject, reply and headers of one message
_MAX_UNACKED = 1_024
_DEAD_DUPLICATES_S = 3_600.0
_V1_TOKENS = 9  # of `$JS.ACK.<stream>.…`; later servers put domain and account before the stream
_LINE = 200

_header_name = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch


class StreamAway(Exception):
    """The stream cannot be consumed as it is; the text says why. It may be otherwise later."""


class LetterTooLarge(Exception):
    """With its headers a dead letter is larger than a message may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMessage:
    """A delivered message. `entry` names it for ever, even if its stream is made anew; `deliveries` counts this one."""

    payload: bytes
    headers: Mapping[str, str]
    subject: str
    entry: str
    deliveries: int
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStream:
    """One project's consumer of one stream."""

    subjects: Subjects
    stream: str
    consumer: str
    description: str
    ack_wait_s: float

    async def ensure(self, session: Session, may_consume: Callable[[Mapping[str, str]], bool]) -> None:
        """Make the consumer where it is missing; it begins with the oldest message of the stream.

        `may_consume` is asked with the stream's metadata. Raises StreamAway, or one of FAULTS.
        """
        if self.stream in (self.subjects.stream, self.subjects.dead_stream):
            raise StreamAway("the stream is the engine's own")
        jetstream = session.client.jetstream(timeout=_TIMEOUT_S)
        config = api.ConsumerConfig(
            durable_name=self.consumer,
            description=self.description,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait_s,
            max_ack_pending=_MAX_UNACKED,
            max_deliver=-1,
        )
        try:
            info = await jetstream.stream_info(self.stream)
            if not may_consume(info.config.metadata or {}):
                raise StreamAway("the stream is not open to this tenant")
            await jetstream.add_consumer(self.stream, config)
        except NotFoundError:
            raise StreamAway("there is no such stream") from None
        except APIError as error:
            raise StreamAway(error.description or f"JetStream answers {error.code}") from None

    async def forget(self, session: Session) -> None:
        """Delete the consumer; none is as good. Raises one of FAULTS."""
        try:
            await session.client.jetstream(timeout=_TIMEOUT_S).delete_consumer(self.stream, self.consumer)
        except NotFoundError:
            return

    def pull(self, session: Session, *, expires_s: float = _EXPIRES_S) -> Pull[QueueMessage]:
        """A request for the next messages, open for at most `expires_s` and at most 15 s."""

        async def receive(message: Msg) -> QueueMessage | None:
            return _queue_message(message)

        # A message larger than the request allows would block all behind it.
        max_bytes = max(_MIN_PULL_BYTES, session.client.max_payload + _AROUND_BYTES)
        return Pull(session, batch=_BATCH, max_bytes=max_bytes, expires_s=min(expires_s, _EXPIRES_S), receive=receive)

    async def run_pull(
        self, pull: Pull[QueueMessage], deliver: Callable[[list[QueueMessage]], Awaitable[None]]
    ) -> None:
        """See `Pull.run`."""
        await pull.run(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}", deliver)


async def acknowledge(session: Session, message: QueueMessage) -> None:
    """It is accepted: it comes no more. Raises one of FAULTS; a lost one means another delivery."""
    await session.client.publish(message.reply, b"+ACK")


async def hold(session: Session, message: QueueMessage) -> None:
    """It is being worked on: the time to acknowledge it begins anew. Raises one of FAULTS."""
    await session.client.publish(message.reply, b"+WPI")


async def put_back(session: Session, message: QueueMessage, delay_s: float) -> None:
    """It is to be delivered again, not before `delay_s`. Raises one of FAULTS."""
    await session.client.publish(message.reply, b"-NAK " + json.dumps({"delay": int(delay_s * 1e9)}).encode())


async def bury(
    session: Session, subjects: Subjects, message: QueueMessage, subject: str, key: str, reasons: Mapping[str, str]
) -> None:
    """Keep it as a dead letter under `subject`, with its own headers and `reasons`; then it comes no more.

    Headers of JetStream's own (`Nats-…`) are kept as `Original-Nats-…`. Doing it twice leaves one letter per `key`.
    Raises LetterTooLarge, or one of FAULTS: then the message comes again.
    """
    client = session.client
    headers = {name: _line(value) for name, value in _kept(message.headers).items()}
    headers |= {name: _line(value) for name, value in reasons.items()}
    headers["Nats-Msg-Id"] = key
    size = len(message.payload) + sum(len(name.encode()) + len(value.encode()) + 4 for name, value in headers.items())
    if size + _LINE > client.max_payload:
        raise LetterTooLarge(f"{size} bytes with its headers, a message may have {client.max_payload}")
    jetstream = client.jetstream(timeout=_TIMEOUT_S)
    try:
        await jetstream.publish(subject, message.payload, headers=headers)
    except NoStreamResponseError:
        await _ensure_dead_stream(client, subjects)
        await jetstream.publish(subject, message.payload, headers=headers)
    await client.publish(message.reply, b"+TERM " + _line(reasons.get("Runr-Reason", ""))[:_LINE].encode())


async def _ensure_dead_stream(client: Client, subjects: Subjects) -> None:
    """Made only where it is missing: how long letters are kept, and in how many copies, is the operator's to change."""
    jetstream = client.jetstream(timeout=_TIMEOUT_S)
    try:
        await jetstream.stream_info(subjects.dead_stream)
    except NotFoundError:
        await jetstream.add_stream(
            api.StreamConfig(
                name=subjects.dead_stream,
                description="messages of projects' queue streams that could not be accepted, with the reason",
                subjects=[subjects.every_dead],
                storage=api.StorageType.FILE,
                duplicate_window=_DEAD_DUPLICATES_S,
            )
        )


def _queue_message(message: Msg) -> QueueMessage | None:
    """None for what JetStream did not send."""
    tokens = message.reply.split(".")
    if tokens[:2] != ["$JS", "ACK"] or len(tokens) < _V1_TOKENS:
        return None
    # stream, consumer, deliveries, sequence in the stream, in the consumer, when it was stored (ns), …
    facts = tokens[2:] if len(tokens) == _V1_TOKENS else tokens[4:]
    return QueueMessage(
        payload=message.data,
        headers=message.headers or {},
        subject=message.subject,
        entry=f"{facts[5]}-{facts[3]}",
        deliveries=int(facts[2]),
        reply=message.reply,
    )


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """A message's headers as its dead letter has them: what JetStream would act upon is renamed."""
    named = {f"Original-{name}" if name.lower().startswith("nats-") else name: value for name, value in headers.items()}
    return {name: value for name, value in named.items() if _header_name(name)}


def _line(text: str) -> str:
    """Fit for a header's value."""
    return " ".join(text.encode(errors="replace").decode().split())
