"""Ingest as it is served: the real composition root, a real database, gRPC calls with tokens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import pytest
from runr.workflows.v1 import (
    event_service_pb2,
    event_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)

from services.core.domain.errors import DomainError
from services.core.rpc.channel import call_metadata, open_channel
from services.core.rpc.server import RpcServer
from services.core.rpc.status import from_rpc_error
from services.core.runtime.clock import SystemClock
from services.core.runtime.config import load
from services.core.runtime.health import Health
from services.core.runtime.lifecycle import Supervisor
from services.core.runtime.service import Runtime
from services.ingest import app
from tests.support.grpc_backend import no_telemetry
from tests.support.hand import Hand
from tests.support.tenancy import BOOTSTRAP_TOKEN, ENCRYPTION_KEY
from tests.support.waiting import until

AWAY = "nats://127.0.0.1:9"
TRACE = "00-" + "c" * 32 + "-" + "d" * 16 + "-01"


class Ingest:
    """A running ingest and stubs for it. `health` is the process's readiness."""

    def __init__(self, health: Health, supervisor: Supervisor, channel: Any) -> None:
        self.health = health
        self._supervisor = supervisor
        self._stopping = False
        self.events = event_service_pb2_grpc.EventServiceStub(channel)
        self.runs = run_service_pb2_grpc.RunServiceStub(channel)

    def request_stop(self) -> None:
        """Begin to drain; nothing where it has begun: a second request would end the drain at once."""
        if not self._stopping:
            self._stopping = True
            self._supervisor.request_stop("the test says so")

    async def send(self, *events: dict[str, Any], test: bool = False) -> Sequence[event_service_pb2.EventResult]:
        request = event_service_pb2.SendEventsRequest(
            events=[event_service_pb2.NewEvent(**event) for event in events], test=test
        )
        answer = await ask(self.events.SendEvents, request)
        return list(answer.results)

    async def start(self, workflow: str = "work", **fields: Any) -> run_service_pb2.StartRunResponse:
        fields = {"project": "default", **fields}
        request = run_service_pb2.StartRunRequest(workflow=workflow, **fields)
        answer: run_service_pb2.StartRunResponse = await ask(self.runs.StartRun, request)
        return answer

    async def get(self, run_id: str) -> run_service_pb2.GetRunResponse:
        request = run_service_pb2.GetRunRequest(run_id=run_id)
        answer: run_service_pb2.GetRunResponse = await ask(self.runs.GetRun, request)
        return answer


async def ask(method: Callable[..., Any], request: Any, *, token: str | None = BOOTSTRAP_TOKEN, **options: Any) -> Any:
    """The answer of a call; the error that it stands for."""
    try:
        return await method(request, metadata=call_metadata(token, trace=TRACE, **options), timeout=20)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def refused(kind: type[DomainError], asking: Any) -> DomainError:
    with pytest.raises(kind) as caught:
        await asking
    assert type(caught.value) is kind
    return caught.value


@pytest.fixture
async def ingest(postgres_url: str, hand: Hand) -> AsyncIterator[Ingest]:
    """Ingest without NATS: nothing of what it answers may depend on it."""
    environ = {
        "DATABASE_URL": postgres_url,
        "NATS_URL": AWAY,
        "RUNR_GRPC_ADDR": "127.0.0.1:0",
        "RUNR_ENCRYPTION_KEY": ENCRYPTION_KEY.hex(),
    }
    health = Health()
    runtime = Runtime("ingest", SystemClock(), random.Random(), health, no_telemetry())
    components = app.build(load(app.Settings, environ), runtime)
    supervisor = Supervisor(components, health=health, grace_s=10)
    (server,) = (component for component in components if isinstance(component, RpcServer))
    running = asyncio.create_task(supervisor.run())

    async def ready() -> bool:
        assert not running.done()
        return (await health.readiness())[0]

    await until(ready)
    channel = open_channel(server.address)
    served = Ingest(health, supervisor, channel)
    yield served
    served.request_stop()
    assert await running == 0
    await channel.close()
