"""JetStream as the producers of a queue use it, and the engine's bridge to it, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerInfo, RetentionPolicy
from nats.js.errors import NotFoundError

from services.core.bus.jetstream import Bus
from services.core.domain.event import EventLimits
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.deliver_message import MessageDeliverer
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.projects import ProjectChange, update_project
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.projects import ProjectRow
from services.ingest.queue_bridge import QueueBridge
from services.ingest.queue_consumer import ConsumerParts
from tests.support.hand import Hand
from tests.support.waiting import until

GUARD_S = 20.0


class Producer:
    """A client of JetStream that makes streams and publishes to them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.jetstream = client.jetstream(timeout=5)

    async def make(self, stream: str, *, metadata: Mapping[str, str] | None = None, workqueue: bool = False) -> None:
        """A stream whose subjects are all below its name in small letters."""
        retention = RetentionPolicy.WORK_QUEUE if workqueue else RetentionPolicy.LIMITS
        await self.jetstream.add_stream(
            name=stream, subjects=[f"{stream.lower()}.>"], metadata=dict(metadata or {}), retention=retention
        )

    async def publish(self, stream: str, *payloads: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Messages, stored when this returns."""
        for payload in payloads:
            await self.jetstream.publish(f"{stream.lower()}.made", payload, headers=dict(headers or {}) or None)

    async def consumer(self, stream: str, name: str) -> ConsumerInfo | None:
        """A consumer's state; None where there is none."""
        try:
            found: ConsumerInfo = await self.jetstream.consumer_info(stream, name)
        except NotFoundError:
            return None
        return found

    async def unacknowledged(self, stream: str, name: str) -> int | None:
        """Messages that a consumer has delivered and that nobody has accounted for."""
        found = await self.consumer(stream, name)
        return None if found is None else found.num_ack_pending

    async def settled(self, stream: str, name: str) -> None:
        """Wait until a consumer has nothing left to deliver and nothing that waits for an acknowledgement."""

        async def is_settled() -> bool:
            found = await self.consumer(stream, name)
            return found is not None and found.num_pending == 0 and found.num_ack_pending == 0

        await until(is_settled)

    async def unasked(self, stream: str, name: str) -> ConsumerInfo:
        """A consumer's state once nobody asks it for messages any more."""

        async def is_unasked() -> ConsumerInfo | None:
            found = await self.consumer(stream, name)
            return found if found is not None and found.num_waiting == 0 else None

        found: ConsumerInfo = await until(is_unasked)
        return found

    async def buried(self, prefix: str) -> int:
        """How many dead letters there are under a prefix."""
        try:
            return int((await self.jetstream.stream_info(f"{prefix.upper()}_DEAD")).state.messages)
        except NotFoundError:
            return 0

    async def dead(self, prefix: str, count: int) -> list[Msg]:
        """The dead letters under a prefix, as many as are wanted. Fails if there are others."""
        stream = f"{prefix.upper()}_DEAD"

        async def are_there() -> bool:
            return await self.buried(prefix) >= count

        await until(are_there)
        reader = await self.jetstream.subscribe(f"{prefix}.dead.>", stream=stream, ordered_consumer=True)
        found = [await reader.next_msg(timeout=5) for _ in range(count)]
        await reader.unsubscribe()
        assert (await self.jetstream.stream_info(stream)).state.messages == count
        return found


@contextlib.asynccontextmanager
async def producing(url: str) -> AsyncIterator[Producer]:
    """A producer, connected while the block runs."""
    client = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    try:
        yield Producer(client)
    finally:
        await client.close()


def make_deliverer(
    database: Database, *, kind: Callable[..., MessageDeliverer] = MessageDeliverer, limits: EventLimits | None = None
) -> MessageDeliverer:
    """A deliverer over the engine's own acceptor."""
    ids = UlidFactory(SystemClock(), random.Random())
    acceptor = EventAcceptor(database, DefinitionsCache(None), Hints(NullPublisher()), ids)
    return kind(acceptor, limits or EventLimits())


class Replica:
    """One process of ingest, as far as queues go."""

    def __init__(self, bus: Bus, bridge: QueueBridge, life: asyncio.Task[None]) -> None:
        self.bus = bus
        self.bridge = bridge
        self.life = life

    async def kill(self) -> None:
        """As kill -9: nothing is finished, put back or told."""
        self.life.cancel()
        await asyncio.wait({self.life})
        await self.bus.stop()

    async def until(self, state: str) -> None:
        """Wait until the bridge says this of itself."""
        await until(lambda: self.bridge.state() == state)


@contextlib.asynccontextmanager
async def bridging(
    database: Database,
    url: str,
    prefix: str,
    *,
    deliverer: MessageDeliverer | None = None,
    ack_wait_s: float = 1.0,
    look_s: float = 0.2,
    forget_s: float = 60.0,
    **parts: Any,
) -> AsyncIterator[Replica]:
    """A bridge that lives while the block runs, and leaves as a process that is told to stop."""
    bus = Bus(url, prefix=prefix)
    chosen = {"max_deliver": 3, "backoff_ms": lambda attempt, jitter: 50, "look_again_s": 0.1, **parts}
    made = ConsumerParts(
        bus=bus,
        database=database,
        deliverer=deliverer or make_deliverer(database),
        turns=asyncio.Semaphore(2),
        jitter=random.Random(1),
        **chosen,
    )
    bridge = QueueBridge(made, SystemClock(), ack_wait_s=ack_wait_s, look_s=look_s, forget_s=forget_s)
    await bus.start()
    await bridge.start()
    life = asyncio.create_task(bridge.run())
    try:
        yield Replica(bus, bridge, life)
    finally:
        if not life.done():
            await bridge.drain()
        life.cancel()
        await asyncio.wait({life})
        await bus.stop()


@pytest.fixture
async def producer(nats_url: str) -> AsyncIterator[Producer]:
    """A producer for the session's NATS."""
    async with producing(nats_url) as made:
        yield made


@pytest.fixture
def stream(nats_prefix: str) -> str:
    """A stream's name that no other test has."""
    return f"ORDERS_{nats_prefix}"


@pytest.fixture
async def project(hand: Hand, sealer: Sealer, stream: str, nats_url: str) -> ProjectRow:
    """The default project with that stream, and with a workflow that a message starts."""
    await hand.declare({"name": "charge", "triggers": [{"queue": stream}]})
    return await change_stream(hand, sealer, f"nats:{stream}")


async def change_stream(hand: Hand, sealer: Sealer, queue_stream: str, slug: str = "default") -> ProjectRow:
    """Give a project another queue stream; "" takes it away."""
    async with hand.database.transaction() as connection:
        return await update_project(connection, sealer, hand.tenant, slug, ProjectChange(queue_stream=queue_stream))


async def events(hand: Hand) -> list[dict[str, Any]]:
    """The tenant's events, oldest first."""
    async with hand.database.connection() as connection:
        rows = await connection.fetch("select * from rt.events where tenant = $1 order by id", hand.tenant)
    return [dict(row) for row in rows]


async def runs(hand: Hand) -> list[dict[str, Any]]:
    """The tenant's runs, oldest first."""
    async with hand.database.connection() as connection:
        rows = await connection.fetch("select * from rt.runs where tenant = $1 order by id", hand.tenant)
    return [dict(row) for row in rows]


async def until_runs(hand: Hand, count: int) -> list[dict[str, Any]]:
    """Wait for so many runs; fails if there are more."""

    async def enough() -> list[dict[str, Any]] | None:
        found = await runs(hand)
        return found if len(found) >= count else None

    found: list[dict[str, Any]] = await until(enough)
    assert len(found) == count
    return found


def consumer_of(replica: Replica, project: ProjectRow) -> str:
    """The name of a project's consumer."""
    return replica.bus.subjects.queue_consumer(project.id)


def numbered(count: int) -> list[bytes]:
    """Messages that say which they are."""
    return [json.dumps({"n": n}).encode() for n in range(count)]
