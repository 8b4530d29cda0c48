"""How the gateway's HTTP server comes to its end: no request is lost that a client has sent in good faith."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from services.core.runtime.health import Health
from services.gateway.http_server import HttpServer
from tests.support.grpc_backend import LOOPBACK

LONG_S = 60.0
REQUEST = b"GET /answer HTTP/1.1\r\nHost: here\r\n\r\n"


class Kept:
    """A connection that its client keeps for more requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self) -> None:
        self._writer.write(REQUEST)

    async def answer(self) -> str:
        """Head and body of the next answer, in small letters; "" when the connection has ended."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            return head + (await self._reader.readexactly(2)).decode()
        return ""

    async def ask(self) -> str:
        self.send()
        return await self.answer()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@asynccontextmanager
async def kept(server: HttpServer) -> AsyncIterator[Kept]:
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    connection = Kept(reader, writer)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def serving(health: Health, *, kept_s: float) -> AsyncIterator[HttpServer]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/answer", answer)
    server = HttpServer(app, LOOPBACK, grace_s=LONG_S, kept_s=kept_s, is_draining=lambda: health.is_draining)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def health() -> Health:
    made = Health()
    made.set_started()
    return made


async def refuses(server: HttpServer) -> None:
    """Wait until nobody can connect any more."""
    with suppress(ConnectionError):
        while True:
            async with kept(server):
                await asyncio.sleep(0.01)


async def test_a_connection_is_kept_until_the_drain_begins(health: Health) -> None:
    async with serving(health, kept_s=LONG_S) as server, kept(server) as connection:
        for _ in range(2):
            assert "connection: close" not in await connection.ask()
        health.set_draining()
        last = await connection.ask()
        assert last.startswith("http/1.1 200")
        assert "connection: close" in last
        assert await connection.answer() == ""
        async with kept(server) as another:
            assert "connection: close" in await another.ask()


async def test_a_kept_connection_has_a_last_request_after_new_ones_are_refused(health: Health) -> None:
    async with serving(health, kept_s=LONG_S) as server, kept(server) as connection, kept(server) as other:
        await connection.ask()
        await other.ask()
        draining = asyncio.create_task(server.drain())
        await refuses(server)
        for each in (connection, other):
            assert not draining.done()
            last = await each.ask()
            assert last.startswith("http/1.1 200")
            assert "connection: close" in last
        await asyncio.wait_for(draining, LONG_S / 2)


async def test_a_connection_that_says_nothing_holds_up_a_drain_for_a_moment_only(health: Health) -> None:
    async with serving(health, kept_s=0.1) as server, kept(server) as connection:
        await connection.ask()
        await asyncio.wait_for(server.drain(), LONG_S / 2)
        assert await connection.answer() == ""


async def test_what_connects_as_the_server_stops_is_served_or_told(health: Health) -> None:
    """None hangs: it is answered, refused, or reset before anything was read."""

    async def connect() -> str:
        try:
            async with kept(server) as connection:
                return await connection.ask()
        except ConnectionError:
            return "refused"

    async with serving(health, kept_s=0.2) as server:
        asked = [asyncio.create_task(connect()) for _ in range(50)]
        await asyncio.sleep(0)
        await server.drain()
        answers = await asyncio.wait_for(asyncio.gather(*asked), LONG_S / 2)
    assert {answer if answer == "refused" else answer[:12] for answer in answers} <= {"http/1.1 200", "refused", ""}
