"""The composition root of `runr queue consume`: a Redis stream in, the queue bridge of a project out."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass

from redis.asyncio import Redis

from services.cli.queue.address import GivenAddress, ProjectAddress, SinkAddress, group_of, looked_up
from services.cli.queue.consumer import QueueConsumer, Rules
from services.cli.queue.meter import watch_consumer
from services.cli.queue.sink import Sink
from services.cli.queue.stream import ConsumerGroup, connect
from services.core.runtime import parse
from services.core.runtime.config import setting
from services.core.runtime.health import NotReady
from services.core.runtime.lifecycle import Component, StartRefused
from services.core.runtime.service import Runtime

DEAD_SUFFIX = ":dead"
_SOCKET = "unix:///"


def _redis(raw: str) -> str:
    """`redis://`, `rediss://`, or `unix:///` and the path of a socket."""
    if raw.startswith(_SOCKET):
        return raw
    try:
        return parse.url("redis", "rediss")(raw)
    except ValueError as error:
        raise ValueError(f"{error}, or {_SOCKET}") from None


@dataclass(frozen=True)
class Settings:
    """What the consumer is told. Without `url` the API at `api_url` is asked for the URL, and for the stream."""

    redis_url: str = setting("RUNR_QUEUE_REDIS", _redis, "redis://127.0.0.1:6379", url=True)
    url: str = setting("RUNR_QUEUE_URL", parse.url("http", "https"), "", secret=True)
    stream: str = setting("RUNR_QUEUE_STREAM", parse.text, "")
    group: str = setting("RUNR_QUEUE_GROUP", parse.text, "")
    consumer: str = setting("RUNR_QUEUE_CONSUMER", parse.text, "")
    dead_stream: str = setting("RUNR_QUEUE_DEAD_STREAM", parse.text, "")
    in_flight: int = setting("RUNR_QUEUE_IN_FLIGHT", parse.integer(1, 1_000), 16)
    max_deliveries: int = setting("RUNR_QUEUE_MAX_DELIVERIES", parse.integer(1, 100), 5)
    claim_after_s: float = setting("RUNR_QUEUE_CLAIM_AFTER", parse.seconds(1, 86_400), 60.0)
    api_url: str = setting("RUNR_API_URL", parse.url("http", "https"), "")
    token: str = setting("RUNR_TOKEN", parse.text, "", secret=True)
    project: str = setting("RUNR_PROJECT", parse.text, "default")
    tenant: str = setting("RUNR_TENANT", parse.text, "")

    def __post_init__(self) -> None:
        if self.url and not self.stream:
            raise ValueError("RUNR_QUEUE_STREAM is not set: the URL does not say which stream is consumed")


class QueueProcess(Component):
    """Finds out what is to be consumed, and consumes it."""

    name = "queue"

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._redis: Redis | None = None
        self._sink: Sink | None = None
        self._consumer: QueueConsumer | None = None
        runtime.health.register("redis", self._check_redis)
        runtime.health.register("engine", self._check_engine)

    async def start(self) -> None:
        """See `Component.start`."""
        settings = self._settings
        address, stream = await self._find()
        group = settings.group or group_of(address.url)
        dead_stream = settings.dead_stream or stream + DEAD_SUFFIX
        if dead_stream == stream:
            raise StartRefused("dead letters must have a stream of their own")
        self._redis = connect(settings.redis_url)
        self._sink = await Sink(address, connections=settings.in_flight).__aenter__()
        self._consumer = QueueConsumer(
            ConsumerGroup(
                self._redis,
                stream=stream,
                group=group,
                consumer=settings.consumer or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
                dead_stream=dead_stream,
            ),
            self._sink,
            address,
            Rules(
                in_flight=settings.in_flight,
                max_deliveries=settings.max_deliveries,
                claim_after_s=settings.claim_after_s,
            ),
            self._runtime.random,
            about={"runr-stream": stream, "runr-group": group},
        )
        watch_consumer(self._runtime.metrics, self._consumer)
        await self._consumer.start()

    async def run(self) -> None:
        """See `Component.run`."""
        await self._started().run()

    async def drain(self) -> None:
        """See `Component.drain`."""
        await self._started().drain()

    async def stop(self) -> None:
        """See `Component.stop`."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()
        if self._sink is not None:
            await self._sink.__aexit__(None, None, None)
        if self._redis is not None:
            await self._redis.aclose()

    def _started(self) -> QueueConsumer:
        assert self._consumer is not None
        return self._consumer

    async def _find(self) -> tuple[SinkAddress, str]:
        settings = self._settings
        if settings.url:
            return GivenAddress(settings.url), settings.stream
        address = ProjectAddress(
            settings.api_url, settings.token, project=settings.project, tenant=settings.tenant or None
        )
        return address, await looked_up(address, settings.stream)

    async def _check_redis(self) -> None:
        if self._consumer is None or self._consumer.redis.is_away:
            raise NotReady("does not answer")

    async def _check_engine(self) -> None:
        if self._consumer is None or not self._consumer.gate.is_open:
            raise NotReady("takes no message")


def build(settings: Settings, runtime: Runtime) -> list[Component]:
    """The components; opens nothing."""
    return [QueueProcess(settings, runtime)]
