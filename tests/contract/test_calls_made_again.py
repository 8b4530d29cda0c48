"""What the gateway does about a call whose server goes away: it asks again where that is harmless, and says what it
does not know where it is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from runr.workflows.v1 import resources_pb2, run_service_pb2, run_service_pb2_grpc

from services.core.domain.errors import NotFound, Unavailable
from services.core.rpc.channel import OPTIONS, call_metadata, open_channel
from services.core.rpc.server import RpcServer
from services.core.runtime.clock import SystemClock
from services.core.runtime.parse import Address
from services.gateway.asking import Peer, only_reads
from tests.support.cuttable import cuttable
from tests.support.grpc_backend import ADMIN, LOOPBACK, rpc_server, serving
from tests.support.waiting import until

LONG_S = 60.0
METADATA = call_metadata(ADMIN)


class Handled:
    """Counts the calls that a server has seen, and holds them where it is told to."""

    def __init__(self, *, holds: bool = False) -> None:
        self.count = 0
        self.seen = asyncio.Event()
        self._holds = holds

    async def get(self, request: Any, context: Any) -> Any:
        await self._note()
        return run_service_pb2.GetRunResponse(run=resources_pb2.Run(id=request.run_id))

    async def cancel(self, request: Any, context: Any) -> Any:
        await self._note()
        return run_service_pb2.CancelRunResponse(run=resources_pb2.Run(id=request.run_id))

    async def _note(self) -> None:
        self.count += 1
        self.seen.set()
        if self._holds:
            await asyncio.Event().wait()

    async def reached(self, count: int) -> None:
        """Wait until so many calls were seen."""
        await until(lambda: self.count >= count)

    def server(self, address: Address = LOOPBACK, *, leave_s: float = 0.0) -> RpcServer:
        """A server of it."""
        methods = {"run.GetRun": self.get, "run.CancelRun": self.cancel}
        return rpc_server(methods, address=address, leave_s=leave_s)


@asynccontextmanager
async def peer_at(address: Address, *, found_s: float = LONG_S) -> AsyncIterator[Peer]:
    """The gateway's side of a service."""
    channel = open_channel(address)
    try:
        yield Peer("ingest", channel, SystemClock(), found_s=found_s)
    finally:
        await channel.close()


async def cancel(peer: Peer) -> Any:
    stub = run_service_pb2_grpc.RunServiceStub(peer.channel)
    request = run_service_pb2.CancelRunRequest(run_id="r")
    return await peer.ask(stub.CancelRun, request, metadata=METADATA, timeout_s=LONG_S, reads=False)


async def get(peer: Peer) -> Any:
    stub = run_service_pb2_grpc.RunServiceStub(peer.channel)
    request = run_service_pb2.GetRunRequest(run_id="r")
    return await peer.ask(stub.GetRun, request, metadata=METADATA, timeout_s=LONG_S, reads=True)


async def test_a_write_that_nobody_has_seen_waits_for_the_next_server() -> None:
    first, second = Handled(), Handled()
    server = first.server()
    await server.start()
    async with peer_at(server.address) as peer:
        await cancel(peer)
        await server.stop()
        asked = asyncio.create_task(cancel(peer))
        async with serving(second.server(server.address)):
            assert (await asked).run.id == "r"
    assert (first.count, second.count) == (1, 1)


async def test_a_write_that_was_seen_is_not_made_again() -> None:
    first, second = Handled(holds=True), Handled()
    server = first.server()
    await server.start()
    async with peer_at(server.address) as peer:
        asked = asyncio.create_task(cancel(peer))
        await first.seen.wait()
        await server.stop()
        async with serving(second.server(server.address)):
            with pytest.raises(Unavailable, match="whether it was carried out is not known"):
                await asked
    assert (first.count, second.count) == (1, 0)


async def test_a_write_whose_connection_breaks_may_have_been_carried_out() -> None:
    handled = Handled(holds=True)
    async with serving(handled.server()) as server, cuttable(f"http://{server.address}") as (url, cut):
        host, _, port = url.removeprefix("http://").rpartition(":")
        async with peer_at(Address(host, int(port))) as peer:
            asked = asyncio.create_task(cancel(peer))
            await handled.seen.wait()
            cut()
            with pytest.raises(Unavailable, match="whether it was carried out is not known"):
                await asked
    assert handled.count == 1


async def test_a_read_that_broke_off_is_made_again() -> None:
    first, second = Handled(holds=True), Handled()
    server = first.server()
    await server.start()
    async with peer_at(server.address) as peer:
        asked = asyncio.create_task(get(peer))
        await first.seen.wait()
        await server.stop()
        async with serving(second.server(server.address)):
            assert (await asked).run.id == "r"
    assert (first.count, second.count) == (1, 1)


async def test_a_read_that_ends_each_server_is_given_up() -> None:
    async def end(request: Any, context: Any) -> Any:
        handled.count += 1
        asyncio.get_running_loop().call_soon(cut)
        await asyncio.Event().wait()

    handled = Handled()
    async with (
        serving(rpc_server({"run.GetRun": end})) as server,
        cuttable(f"http://{server.address}") as (url, cut),
    ):
        host, _, port = url.removeprefix("http://").rpartition(":")
        async with peer_at(Address(host, int(port))) as peer:
            with pytest.raises(Unavailable):
                await get(peer)
    assert handled.count == 3


async def test_what_a_server_has_answered_is_not_asked_again() -> None:
    async def away(request: Any, context: Any) -> Any:
        handled.count += 1
        raise error

    handled = Handled()
    async with serving(rpc_server({"run.GetRun": away})) as server, peer_at(server.address) as peer:
        for error in (Unavailable("the database is away"), NotFound("no such run")):
            with pytest.raises(type(error), match=error.message):
                await get(peer)
    assert handled.count == 2


async def test_a_server_that_drains_is_left_before_it_refuses() -> None:
    """No call is cut off at the end of a server: nobody would know whether it was carried out."""
    first, second = Handled(), Handled()
    server = first.server(leave_s=1.0)
    await server.start()
    async with (
        asyncio.timeout(LONG_S),
        peer_at(server.address) as peer,
        AsyncExitStack() as opened,
        calling(peer, cancel) as answered,
    ):
        await first.seen.wait()
        await server.drain()
        await opened.enter_async_context(serving(second.server(server.address)))
        await second.seen.wait()
    assert first.count + second.count == len(answered)


async def test_a_service_that_stays_away_is_missed_only_once() -> None:
    handled = Handled()
    server = handled.server()
    await server.start()
    await server.stop()
    async with peer_at(server.address, found_s=0.2) as peer:
        for _ in range(2):
            with pytest.raises(Unavailable, match="ingest cannot be reached; try again"):
                await cancel(peer)
        async with serving(handled.server(server.address)):

            async def reached() -> bool:
                with suppress(Unavailable):
                    await cancel(peer)
                return handled.count > 0

            await until(reached)


@pytest.mark.parametrize(
    ("method", "reads"),
    [
        *((name, True) for name in ("GetRun", "ListRuns", "AwaitRun", "GetCaller", "ListEvents", "GetApp")),
        *((name, False) for name in ("StartRun", "CancelRun", "SendEvents", "UpdateApp", "RevealSigningKey")),
    ],
)
def test_only_what_changes_nothing_is_a_read(method: str, reads: bool) -> None:
    assert only_reads(method) is reads


@asynccontextmanager
async def two_replicas() -> AsyncIterator[tuple[Peer, list[Handled], list[RpcServer]]]:
    """The gateway's side of a name with two addresses, as a headless service has, and what is behind it."""
    handled = [Handled(), Handled()]
    servers = [each.server(leave_s=1.0) for each in handled]
    async with serving(servers[0]), serving(servers[1]):
        target = f"ipv4:{servers[0].address},{servers[1].address}"
        async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
            yield Peer("ingest", channel, SystemClock(), found_s=LONG_S), handled, servers


@pytest.mark.parametrize("call", [cancel, get])
async def test_of_two_replicas_one_drains_and_no_call_is_lost(call: Callable[[Peer], Awaitable[Any]]) -> None:
    async with asyncio.timeout(LONG_S), two_replicas() as (peer, handled, servers):
        async with calling(peer, call) as answered:
            await asyncio.gather(*(each.seen.wait() for each in handled))
            await servers[0].drain()
            left = handled[1].count
            await handled[1].reached(left + 50)
        assert sum(each.count for each in handled) == len(answered)


async def test_of_two_replicas_one_dies_and_no_read_is_lost() -> None:
    async with asyncio.timeout(LONG_S), two_replicas() as (peer, handled, servers), calling(peer, get) as answered:
        await asyncio.gather(*(each.seen.wait() for each in handled))
        await servers[0].stop()
        await handled[1].reached(handled[1].count + 50)
    assert answered


@asynccontextmanager
async def calling(peer: Peer, call: Callable[[Peer], Awaitable[Any]]) -> AsyncIterator[list[Any]]:
    """Ten callers, each with one call after another during the block; their answers."""

    async def call_on() -> None:
        while not over.is_set():
            answered.append(await call(peer))

    over, answered = asyncio.Event(), list[Any]()
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(call_on())
        try:
            yield answered
        finally:
            over.set()
