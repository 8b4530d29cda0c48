"""A connection that is accepted while its server stops ends with the server, and not with the loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping

import pytest
from runr_workflows.serving.loop_server import LoopServer

from services.core.runtime.health import Health
from services.core.runtime.health_server import HealthServer
from services.core.runtime.parse import Address
from tests.support.listener import Listener

Stop = Callable[[], Awaitable[object]]


async def of_health() -> tuple[int, Stop]:
    server = HealthServer(Health(), Address("127.0.0.1", 0), "ingest")
    await server.start()
    return server.address.port, server.stop


async def of_workflows() -> tuple[int, Stop]:
    async def refuse(_body: bytes, _headers: Mapping[str, str]) -> tuple[int, bytes]:
        raise AssertionError("nothing was asked")

    server = await LoopServer(refuse, "127.0.0.1", 0).__aenter__()
    return server.port, server.stop


async def of_tests() -> tuple[int, Stop]:
    async def read(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    listener = Listener(read)
    return await listener.start(), listener.stop


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("make", [of_health, of_workflows, of_tests])
async def test_a_connection_that_is_being_accepted(make: Callable[[], Awaitable[tuple[int, Stop]]], turns: int) -> None:
    port, stop = await make()
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop()
        for _ in range(3):
            await asyncio.sleep(0)
        client.setblocking(False)
        with contextlib.suppress(ConnectionResetError):  # the system does so with what nobody has accepted
            assert client.recv(1) == b""
