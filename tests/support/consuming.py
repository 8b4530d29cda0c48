"""The consumer of a Redis stream in the process of a test."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis.asyncio import Redis

from services.cli.queue.address import GivenAddress, SinkAddress
from services.cli.queue.consumer import QueueConsumer, Rules, Sleep
from services.cli.queue.gate import Gate
from services.cli.queue.sink import Sink
from services.cli.queue.stream import ConsumerGroup, connect
from tests.support.bridge_sink import Bridge
from tests.support.redis_server import RedisServer
from tests.support.waiting import until

STREAM, GROUP, DEAD = "payments", "runr:acme:shop", "payments:dead"
WAIT_S = 60.0

_numbers = itertools.count(1)


class Consuming:
    """A running consumer. `drain` ends it in order, `kill` as if its process had died."""

    def __init__(self, consumer: QueueConsumer, client: Redis, sink: Sink) -> None:
        self.consumer = consumer
        self._client = client
        self._sink = sink
        self._task = asyncio.create_task(consumer.run())

    async def drain(self) -> None:
        await self.consumer.drain()
        await self._end()

    async def kill(self) -> None:
        """Nothing is told to Redis any more."""
        await self._client.connection_pool.disconnect(inuse_connections=True)
        self._client.connection_pool.connection_kwargs["path"] = "/nowhere"
        await self._end()

    async def _end(self) -> None:
        if self._task.done():
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.consumer.stop()
        await self._sink.__aexit__(None, None, None)
        await self._client.aclose()


@asynccontextmanager
async def consuming(
    server: RedisServer,
    bridge: Bridge,
    *,
    name: str | None = None,
    url: str | None = None,
    address: SinkAddress | None = None,
    sleep: Sleep = asyncio.sleep,
    answer_s: float | None = None,
    **rules: Any,
) -> AsyncIterator[Consuming]:
    """A consumer of `STREAM` for the time of the block; the pauses of its gate are short. After `answer_s` without an
    answer a Redis is away.
    """
    client = connect(url or server.url)
    if answer_s is not None:
        client.connection_pool.connection_kwargs["socket_timeout"] = answer_s
    chosen = Rules(**{"claim_after_s": 3_600.0, **rules})
    where = address or GivenAddress(bridge.url)
    sink = Sink(where, connections=chosen.in_flight)
    group = ConsumerGroup(
        client, stream=STREAM, group=GROUP, consumer=name or f"c{next(_numbers)}", dead_stream=DEAD
    )  # fmt: skip
    source = random.Random(7)
    consumer = QueueConsumer(group, sink, where, chosen, source, about={"runr-stream": STREAM}, sleep=sleep)
    consumer.gate = Gate(source, first_s=0.02, most_s=0.1)
    try:
        await consumer.start()
    except BaseException:
        await client.aclose()
        raise
    await sink.__aenter__()
    made = Consuming(consumer, client, sink)
    try:
        yield made
    finally:
        async with asyncio.timeout(WAIT_S):
            await made.drain()


async def add(server: RedisServer, count: int = 1, **fields: str | bytes) -> list[str]:
    """Entries of the stream; their ids."""
    made = [await server.client.xadd(STREAM, {"n": str(number), **fields}) for number in range(count)]
    return [each.decode() for each in made]


async def pending(server: RedisServer) -> int:
    """How many entries nobody has accounted for."""
    told = await server.client.xpending(STREAM, GROUP)
    return int(told["pending"])


async def settled(server: RedisServer) -> None:
    """Wait until everything in the stream is accounted for."""

    async def is_settled() -> bool:
        (group,) = await server.client.xinfo_groups(STREAM)
        info = await server.client.xinfo_stream(STREAM)
        return bool(group["pending"] == 0 and group["last-delivered-id"] == info["last-generated-id"])

    await until(is_settled, WAIT_S)
