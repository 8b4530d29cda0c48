"""A Redis stream through `runr queue consume` into runs, while whatever is between them dies."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from services.core.runtime.python_child import python_command
from tests.e2e.test_queue import charging
from tests.support.child import Child
from tests.support.redis_server import RedisServer
from tests.support.rest import Rest
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.waiting import until
from tests.support.workflow_app import serving

COUNT = 120
STREAM = "payments"
HTTP_BECAUSE = "what dies is between the queue and the run, whoever executes it"

_numbers = count(1)


@asynccontextmanager
async def consumer(rest: Rest, redis: RedisServer, folder: Path, *words: str) -> AsyncIterator[Child]:
    """A process of the command, started; it ends with the block."""
    environ = {
        "PATH": "/usr/bin",
        "RUNR_API_URL": rest.base,
        "RUNR_TOKEN": rest.token,
        "RUNR_HOME": str(folder),
        "RUNR_QUEUE_REDIS": redis.url,
        "RUNR_LOG_FORMAT": "json",
        "RUNR_GRACE": "10s",
    }
    command = python_command("services.cli.main", "queue", "consume", "--claim-after", "1s", *words)
    number = next(_numbers)
    child = Child(
        f"consumer-{number}", "", environ=environ, health="127.0.0.1:0", log=folder / f"{number}.log", command=command
    )
    child.start()
    try:
        yield child
    finally:
        await child.stop()


@only_over("http", because=HTTP_BECAUSE)
async def test_nothing_is_lost_or_doubled_whatever_is_killed(stack: Stack, rest: Rest, tmp_path: Path) -> None:
    await rest.ok("PATCH", "/projects/default", {"config": {"queue_stream": STREAM}})
    async with RedisServer() as redis, serving(rest, charging) as bodies:

        async def produce(numbers: range) -> None:
            for number in numbers:
                await redis.client.xadd(STREAM, {"payload": json.dumps({"order_id": number})})

        async with consumer(rest, redis, tmp_path) as first, consumer(rest, redis, tmp_path) as second:
            await produce(range(COUNT // 3))
            await bodies.until(lambda done: len(done) > 5)
            first.kill(signal.SIGKILL)
            await first.ended()
            await redis.kill()
            await redis.start()
            await produce(range(COUNT // 3, 2 * COUNT // 3))
            await bodies.until(lambda done: len({body.run for body in done}) >= COUNT // 3 + 5)
            await stack.kill("gateway")
            await produce(range(2 * COUNT // 3, COUNT))
            await stack.start("gateway")
            await bodies.until(lambda done: len({body.run for body in done}) >= COUNT)

            async def accounted_for() -> dict[str, Any] | None:
                (group,) = await redis.client.xinfo_groups(STREAM)
                return None if group["pending"] else group

            group = await until(accounted_for)
            assert group["name"] == f"runr:{rest.tenant}:default".encode()
            second.kill(signal.SIGTERM)
            assert await second.ended() == 0
        dead = await redis.client.xlen(f"{STREAM}:dead")
    runs = await rest.runs("?workflow=charge&limit=200")
    outputs = [await rest.completed(run["id"]) for run in runs]
    assert sorted(output["data"]["order_id"] for output in outputs) == list(range(COUNT))
    assert {(output["source"], output["event"]) for output in outputs} == {("queue", f"queue/{STREAM}")}
    assert dead == 0


@only_over("http", because=HTTP_BECAUSE)
async def test_messages_that_no_event_can_hold_are_dead_letters_and_a_rotated_key_is_followed(
    stack: Stack, rest: Rest, tmp_path: Path
) -> None:
    await rest.ok("PATCH", "/projects/default", {"config": {"queue_stream": STREAM}})
    async with RedisServer("valkey") as redis, serving(rest, charging) as bodies:
        too_large = await redis.client.xadd(STREAM, {"text": "x" * 300_000})
        await redis.client.xadd(STREAM, {"order_id": "o-1"})
        async with consumer(rest, redis, tmp_path, "--dead-stream", "graves"):
            await bodies.until(lambda done: len(done) == 1)
            # The function knows the first key alone: it is not called any more.
            await rest.ok("PATCH", "/projects/default/workflows/charge", {"is_active": False})
            for _ in range(2):  # the address before the last one is refused at once
                await rest.ok("POST", "/projects/default/workflows/app/rotate-key", {})
            await redis.client.xadd(STREAM, {"order_id": "o-2"})
            await rest.until(
                lambda: rest.ok("GET", f"/events?name=queue/{STREAM}"), lambda page: len(page["data"]) == 2
            )
        ((_, letter),) = await redis.client.xrange("graves")
    assert letter[b"runr-entry"] == too_large
    assert letter[b"runr-reason"].startswith(b"413 ")
    assert len(letter[b"text"]) == 300_000


@only_over("http", because=HTTP_BECAUSE)
async def test_a_start_that_cannot_go_well_says_why(stack: Stack, rest: Rest, tmp_path: Path) -> None:
    async with RedisServer() as redis:
        for stream, said in ((None, "shows no queue bridge"), ("nats:payments", "shows no queue bridge")):
            await rest.ok("PATCH", "/projects/default", {"config": {"queue_stream": stream}})
            async with consumer(rest, redis, tmp_path) as process:
                assert await process.ended() == 1
            assert said in process.log_tail()
        await redis.client.set(STREAM, "a text")
        await rest.ok("PATCH", "/projects/default", {"config": {"queue_stream": STREAM}})
        async with consumer(rest, redis, tmp_path) as process:
            assert await process.ended() == 1
        assert "redis refuses: WRONGTYPE" in process.log_tail()
        assert rest.token not in process.log_tail()
