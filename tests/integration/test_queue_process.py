"""The process around the consumer: its settings, what it tells of itself, and its end."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator

import pytest

from services.cli.failure import Failure
from services.cli.main import parser
from services.cli.queue import command
from services.cli.queue.app import Settings, build
from services.core.runtime.clock import SystemClock
from services.core.runtime.config import ConfigError, describe, load
from services.core.runtime.health import Health
from services.core.runtime.lifecycle import StartRefused
from services.core.runtime.metrics import Metrics
from services.core.runtime.service import Runtime
from tests.support.bridge_sink import PATH, bridge
from tests.support.consuming import GROUP, STREAM, add, settled
from tests.support.grpc_backend import no_telemetry
from tests.support.redis_server import RedisServer
from tests.support.waiting import until


@pytest.fixture
async def server() -> AsyncIterator[RedisServer]:
    async with RedisServer("valkey") as made:
        yield made


def runtime() -> Runtime:
    health = Health()
    health.set_started()
    return Runtime(
        service="queue",
        clock=SystemClock(),
        random=random.Random(3),
        health=health,
        telemetry=no_telemetry(),
        metrics=Metrics("queue"),
    )


def counted(about: Runtime) -> dict[tuple[str, ...], float]:
    return {
        (family.metric.name.removeprefix("runr_consumer_"), *labels): value
        for family in about.metrics.families()
        for labels, value in family.numbers.items()
    }


async def test_it_tells_of_itself_what_it_does(server: RedisServer) -> None:
    def answer(_: str, fields: dict[str, str]) -> int:
        return 422 if fields["n"] == "1" else 200

    about = runtime()
    async with bridge(answer) as sink:
        environ = {"RUNR_QUEUE_REDIS": server.url, "RUNR_QUEUE_URL": sink.url, "RUNR_QUEUE_STREAM": STREAM}
        (process,) = build(load(Settings, environ), about)
        assert not (await about.health.readiness())[0]
        await process.start()
        running = asyncio.create_task(process.run())
        await add(server, 3)
        await settled(server)
        assert (await about.health.readiness())[0]
        assert counted(about) == {
            ("entries", "accepted"): 2,
            ("entries", "duplicate"): 0,
            ("entries", "dead"): 1,
            ("held",): 0,
            ("away", "redis"): 0,
            ("away", "engine"): 0,
        }
        (group,) = await server.client.xinfo_groups(STREAM)
        assert group["name"] == GROUP.encode()
        assert await server.client.xlen(f"{STREAM}:dead") == 1
        await server.kill()

        async def is_away() -> bool:
            return not (await about.health.readiness())[0]

        await until(is_away)
        assert counted(about)["away", "redis"] == 1
        async with asyncio.timeout(30):
            await process.drain()  # nothing is waited for that may never come
        running.cancel()
        await asyncio.wait({running})
        await process.stop()
        await process.stop()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"RUNR_QUEUE_REDIS": "http://127.0.0.1"}, "RUNR_QUEUE_REDIS must be a URL that starts with redis://"),
        ({"RUNR_QUEUE_URL": f"http://127.0.0.1{PATH}"}, "RUNR_QUEUE_STREAM is not set"),
        ({"RUNR_QUEUE_IN_FLIGHT": "0"}, "RUNR_QUEUE_IN_FLIGHT must be a whole number from 1 to 1000"),
        ({"RUNR_QUEUE_MAX_DELIVERIES": "x"}, "RUNR_QUEUE_MAX_DELIVERIES must be a whole number"),
        ({"RUNR_QUEUE_CLAIM_AFTER": "10ms"}, "RUNR_QUEUE_CLAIM_AFTER must be a duration from 1 s"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        load(Settings, given)


def test_no_secret_is_shown() -> None:
    environ = {
        "RUNR_QUEUE_REDIS": "rediss://user:hunter2@redis.example.com:6380/1",
        "RUNR_QUEUE_URL": f"https://api.example.com{PATH}",
        "RUNR_QUEUE_STREAM": STREAM,
        "RUNR_TOKEN": "rt_secret_0123456789",
    }
    settings = load(Settings, environ)
    shown = f"{settings} {describe(settings)}"
    assert not [secret for secret in ("hunter2", PATH, "rt_secret_0123456789") if secret in shown]


async def test_dead_letters_have_a_stream_of_their_own(server: RedisServer) -> None:
    environ = {
        "RUNR_QUEUE_REDIS": server.url,
        "RUNR_QUEUE_URL": f"http://127.0.0.1:9{PATH}",
        "RUNR_QUEUE_STREAM": STREAM,
        "RUNR_QUEUE_DEAD_STREAM": STREAM,
    }
    (process,) = build(load(Settings, environ), runtime())
    with pytest.raises(StartRefused, match="a stream of their own"):
        await process.start()
    await process.stop()


def test_without_the_client_of_redis_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        name for name in sys.modules if name.partition(".")[0] == "redis" or name.startswith("services.cli.queue.")
    ]
    for name in names:
        if name != command.__name__:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    given: argparse.Namespace = parser().parse_args(["queue", "consume", "--stream", STREAM])
    with pytest.raises(Failure, match=r"pip install ./proto '\.\[redis\]'"):
        command.consume({"RUNR_QUEUE_URL": f"http://127.0.0.1:9{PATH}"}, given)
