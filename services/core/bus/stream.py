"""The stream of ready hints and its consumer: made when missing, corrected when different."""

from __future__ import annotations

from nats.aio.client import Client
from nats.js import api
from nats.js.errors import BadRequestError

from services.core.bus.subjects import CONSUMER, Subjects

_TIMEOUT_S = 2.0
_MAX_AGE_S = 60.0
_MAX_BYTES = 64 * 1024 * 1024
_ACK_WAIT_S = 10.0
_MAX_UNACKED = 20_000


async def ensure_ready_stream(client: Client, subjects: Subjects) -> None:
    """Create what is missing. Raises nats and JetStream errors; safe to repeat and to race."""
    jetstream = client.jetstream(timeout=_TIMEOUT_S)
    config = api.StreamConfig(
        name=subjects.stream,
        description="runs that are ready to be claimed; every message is only a hint",
        subjects=[subjects.every_ready],
        retention=api.RetentionPolicy.WORK_QUEUE,
        storage=api.StorageType.MEMORY,
        discard=api.DiscardPolicy.OLD,
        max_age=_MAX_AGE_S,
        max_bytes=_MAX_BYTES,
        duplicate_window=_MAX_AGE_S,
    )
    try:
        await jetstream.add_stream(config)
    except BadRequestError:  # it exists with another configuration: an older or newer release made it
        await jetstream.update_stream(config)
    # A hint is acknowledged on receipt: a run may take minutes, and a hint held so long would be delivered again.
    consumer = api.ConsumerConfig(
        durable_name=CONSUMER,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=_ACK_WAIT_S,
        max_ack_pending=_MAX_UNACKED,
        filter_subject=subjects.every_ready,
        mem_storage=True,
    )
    await jetstream.add_consumer(subjects.stream, consumer)


async def pending_hints(client: Client, subjects: Subjects) -> int:
    """Messages that wait in the stream. Raises nats and JetStream errors."""
    info = await client.jetstream(timeout=_TIMEOUT_S).consumer_info(subjects.stream, CONSUMER)
    return (info.num_pending or 0) + (info.num_ack_pending or 0)
