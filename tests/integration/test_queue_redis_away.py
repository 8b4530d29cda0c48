"""`runr queue consume` and a Redis that is killed, has lost everything, or stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from tests.support.bridge_sink import Bridge, bridge
from tests.support.consuming import add, consuming, settled
from tests.support.redis_server import RedisServer, redis, server
from tests.support.waiting import until

__all__ = ["redis", "server"]


def _has(accepted: int) -> Callable[[Bridge], bool]:
    return lambda sink: len(sink.accepted) >= accepted


async def test_a_redis_that_is_killed_loses_nothing(server: RedisServer) -> None:
    numbers = count()

    async def produce(stop: asyncio.Event, made: list[str]) -> None:
        while not stop.is_set():
            made.extend(await add(server, number=str(next(numbers))))
            await asyncio.sleep(0.002)

    made: list[str] = []
    async with bridge() as sink, consuming(server, sink, in_flight=4, claim_after_s=0.5):
        for _ in range(2):
            stop = asyncio.Event()
            producing = asyncio.create_task(produce(stop, made))
            reached = len(sink.accepted) + 20
            await sink.until(_has(reached))
            stop.set()
            await producing
            await server.kill()
            await server.start()
        made += await add(server)
        await sink.until(lambda sink: set(sink.accepted) == set(made))
        await settled(server)


async def test_a_redis_that_has_lost_everything_gets_its_group_again() -> None:
    async with RedisServer(forgets=True) as server, bridge() as sink, consuming(server, sink, claim_after_s=0.5):
        await add(server)
        await sink.until(lambda sink: len(sink.accepted) == 1)
        await server.kill()
        await server.start()
        await add(server)
        await sink.until(lambda sink: len(sink.accepted) == 2)
        await settled(server)


async def test_a_redis_that_stands_still_is_waited_for(redis: RedisServer) -> None:
    async with bridge() as sink, consuming(redis, sink, claim_after_s=0.5, answer_s=1.5) as running:
        await add(redis)
        await sink.until(lambda sink: len(sink.accepted) == 1)
        redis.freeze()
        adding = asyncio.create_task(add(redis))
        await until(lambda: running.consumer.redis.is_away)
        redis.thaw()
        await adding
        await sink.until(lambda sink: len(sink.accepted) == 2)
