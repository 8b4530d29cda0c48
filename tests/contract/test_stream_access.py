"""A stream that outlives its token, or its caller's role, tells nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from runr.workflows.v1 import run_service_pb2, run_service_pb2_grpc

from services.core.domain.caller import WORKFLOWS_VIEW, Caller
from services.core.domain.errors import Unauthenticated
from services.core.rpc import interceptor
from services.core.rpc.channel import call_metadata, open_channel
from services.core.rpc.server import RpcServer
from tests.support.grpc_backend import LOOPBACK, no_telemetry, serving


class Doorkeeper:
    """Knows one token, until it is taken back or may do nothing."""

    def __init__(self) -> None:
        self.known = True
        self.abilities = frozenset({WORKFLOWS_VIEW})
        self.denials: list[str] = []

    async def authenticate(self, token: str, tenant_hint: str | None) -> Caller:
        if not self.known:
            raise Unauthenticated("the token is not known")
        return Caller(tenant=1, token_id="t", abilities=self.abilities)

    async def denied(self, caller: Caller, method: str) -> None:
        self.denials.append(method)


class Watched(run_service_pb2_grpc.RunServiceServicer):
    """Answers once for each time that it is told to."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[None] = asyncio.Queue()

    async def WatchRun(self, request: Any, context: Any) -> Any:
        while True:
            await self.told.get()
            yield run_service_pb2.WatchRunResponse()


class Written(Watched):
    """Writes its answers, as the engine's own does."""

    async def WatchRun(self, request: Any, context: Any) -> Any:
        while True:
            await self.told.get()
            await context.write(run_service_pb2.WatchRunResponse())


@asynccontextmanager
async def guarded(
    door: Doorkeeper, servicer: run_service_pb2_grpc.RunServiceServicer
) -> AsyncIterator[run_service_pb2_grpc.RunServiceStub]:
    """The way to a server whose callers come through this door."""
    server = RpcServer(
        LOOPBACK,
        [(run_service_pb2_grpc.add_RunServiceServicer_to_server, servicer)],
        authenticator=door,
        telemetry=no_telemetry(),
    )
    async with serving(server), open_channel(server.address) as channel:
        yield run_service_pb2_grpc.RunServiceStub(channel)


@pytest.mark.parametrize("kind", [Watched, Written])
@pytest.mark.parametrize(
    ("change", "code"),
    [("known", grpc.StatusCode.UNAUTHENTICATED), ("abilities", grpc.StatusCode.PERMISSION_DENIED)],
)
async def test_a_stream_ends_with_the_right_to_it(
    monkeypatch: pytest.MonkeyPatch, change: str, code: grpc.StatusCode, kind: type[Watched]
) -> None:
    monkeypatch.setattr(interceptor, "JUDGE_AGAIN_S", 0.0)
    door, watched = Doorkeeper(), kind()
    async with guarded(door, watched) as stub:
        call = stub.WatchRun(run_service_pb2.WatchRunRequest(run_id="r"), metadata=call_metadata("t"), timeout=30)
        for _ in range(2):
            watched.told.put_nowait(None)
            assert await call.read() is not grpc.aio.EOF
        setattr(door, change, False if change == "known" else frozenset())
        watched.told.put_nowait(None)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
    assert ended.value.code() is code
    assert len(door.denials) == (1 if change == "abilities" else 0)


class Awaited(run_service_pb2_grpc.RunServiceServicer):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.told = asyncio.Event(), asyncio.Event()

    async def AwaitRun(self, request: Any, context: Any) -> Any:
        self.asked.set()
        await self.told.wait()
        return run_service_pb2.AwaitRunResponse()


async def test_a_call_that_waits_ends_with_the_right_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptor, "JUDGE_AGAIN_S", 0.0)
    door, waiting = Doorkeeper(), Awaited()
    async with guarded(door, waiting) as stub:
        call = stub.AwaitRun(run_service_pb2.AwaitRunRequest(run_id="r"), metadata=call_metadata("t"), timeout=30)
        await waiting.asked.wait()
        door.known = False
        waiting.told.set()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
