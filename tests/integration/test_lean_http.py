"""The HTTP client under load: bounds, big requests, cancelled calls, and nothing leaked."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from asyncio import selector_events
from typing import Any

import pytest

from services.core.domain.op import FunctionFault
from services.executor.function_client import HttpFunctionClient, RawAnswer, Target
from services.executor.lean_http.client import Answer, LeanClient, Request
from services.executor.lean_http.connection import Origin
from services.executor.lean_http.dial import Dialer
from services.executor.lean_http.errors import ConnectionBroken
from tests.support.fake_function import KEY, FakeFunction
from tests.support.function_calls import ask, client, localhost, make_client
from tests.support.raw_server import RawServer, answer, read_request
from tests.support.waiting import until

__all__ = ["client"]


def open_sockets() -> int:
    """Sockets of this process."""
    found = 0
    for each in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
        except FileNotFoundError:  # the folder's own
            continue
    return found


def lean(**bounds: int) -> LeanClient:
    """The client below the functions' one."""
    dialer = Dialer(
        resolve=localhost,
        open_socket=lambda _: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        timeout_s=5.0,
    )
    return LeanClient(dialer, max_body=1 << 23, max_other_body=1 << 16, **bounds)


async def post(client: LeanClient, server: RawServer, body: bytes = b"{}") -> Answer:
    origin = Origin("http", "127.0.0.1", server.port, True)
    return await client.post(origin, Request("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n", "", body), 10.0)


class TestBounds:
    @pytest.mark.parametrize("repeats_ids", [True, False])
    async def test_no_origin_gets_more_connections_than_the_bound(self, repeats_ids: bool) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                asked = await read_request(reader)
                await asyncio.sleep(0.001)
                writer.write(answer(asked.body, asked.id if repeats_ids else None))

        async with RawServer(serve) as server, lean(per_origin=3) as client:
            bodies = [b"%d" % number for number in range(60)]
            got = await asyncio.gather(*(post(client, server, body) for body in bodies))
            assert [each.body for each in got] == bodies
            assert server.most_open <= 3 if repeats_ids else server.connections == 60

    async def test_those_who_wait_for_a_connection_may_give_up(self) -> None:
        go_on = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                asked = await read_request(reader)
                await go_on.wait()
                writer.write(answer(asked.body, asked.id))

        async with RawServer(serve) as server, lean(per_origin=1) as client:
            calls = [asyncio.create_task(post(client, server, b"%d" % number)) for number in range(9)]
            await until(lambda: server.connections == 1)
            for call in calls[1::2]:
                call.cancel()
            go_on.set()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(each, asyncio.CancelledError) for each in ends] == [False, True] * 4 + [False]
            assert (await post(client, server, b"next")).body == b"next"
            assert server.connections == 1

    async def test_few_connections_are_kept_idle(self) -> None:
        together = asyncio.Barrier(8)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                asked = await read_request(reader)
                await together.wait()
                writer.write(answer(asked.body, asked.id))

        async with RawServer(serve) as server, lean(max_idle=2) as client:
            await asyncio.gather(*(post(client, server) for _ in range(8)))
            await until(lambda: server.open_now == 2)

    async def test_a_failed_connection_gives_its_slot_back(self) -> None:
        async with RawServer(lambda reader, writer: asyncio.sleep(0)) as server:
            gone = server
        async with lean(per_origin=1) as client:
            for _ in range(3):
                with pytest.raises(ConnectionBroken, match="cannot connect"):
                    await post(client, gone)

    async def test_no_socket_is_left_over(self, client: HttpFunctionClient) -> None:
        before = open_sockets()
        async with make_client() as other, FakeFunction(repeats_ids=True) as function:
            await asyncio.gather(*(ask(other, function) for _ in range(50)))
        async with FakeFunction() as function:
            await asyncio.gather(*(ask(client, function) for _ in range(50)))
        await until(lambda: open_sockets() <= before)


class TestBigRequests:
    @pytest.mark.asyncio(loop_factories=["asyncio"])  # uvloop's transports cannot be watched from here
    async def test_a_request_leaves_no_faster_than_it_is_taken(
        self, client: HttpFunctionClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The transport's buffer stays small, though the server takes nothing for a while."""
        most, go_on = 0, asyncio.Event()
        transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
        write = transport.write

        def watched(self: Any, data: Any) -> None:
            nonlocal most
            write(self, data)
            most = max(most, self.get_write_buffer_size())
            go_on.set()

        monkeypatch.setattr(transport, "write", watched)

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await go_on.wait()
            asked = await read_request(reader)
            writer.write(answer(b"%d" % len(asked.body), asked.id))

        async with RawServer(slow) as server:
            text = "x" * 30_000_000
            got = await client.call(Target(server.url, (KEY,)), "introspect", text, {}, 20.0)
            assert int(got.body) > 30_000_000
        assert 0 < most < 1_000_000

    async def test_an_answer_before_the_end_of_the_request_is_taken(self, client: HttpFunctionClient) -> None:
        async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            request_id = head.lower().split(b"x-runr-request-id: ")[1][:32].decode()
            writer.write(answer(b"too big", request_id, status="413 Content Too Large"))
            await writer.drain()
            await hung_up.wait()

        hung_up = asyncio.Event()
        async with RawServer(hasty) as server:
            got = await client.call(Target(server.url, (KEY,)), "introspect", "x" * 30_000_000, {}, 20.0)
            assert got == RawAnswer(413, b"too big")
            hung_up.set()
            # The rest of the request was never sent: nothing may follow it on that connection.
            again = await client.call(Target(server.url, (KEY,)), "introspect", "x", {}, 20.0)
            assert (again.status, server.connections) == (413, 2)

    async def test_a_server_that_takes_nothing_is_a_timeout(self, client: HttpFunctionClient) -> None:
        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with RawServer(deaf) as server:
            with pytest.raises(FunctionFault, match=r"within 0\.3 s"):
                await client.call(Target(server.url, (KEY,)), "introspect", "x" * 30_000_000, {}, 0.3)


class TestCancelling:
    async def test_a_storm_of_cancelled_calls_leaves_nothing_behind(self) -> None:
        """Calls are cancelled at every stage; whoever is answered is answered with its own text."""
        chance = random.Random(7)
        before = open_sockets()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                asked = await read_request(reader)
                for part in cut(answer(asked.body, asked.id)):
                    writer.write(part)
                    await asyncio.sleep(0)

        def cut(whole: bytes) -> list[bytes]:
            place = chance.randrange(len(whole))
            return [whole[:place], whole[place:]]

        answered = 0
        async with RawServer(serve) as server, lean(per_origin=20) as client:

            async def caller(name: int) -> None:
                nonlocal answered
                for turn in range(25):
                    text = b"%d-%d" % (name, turn)
                    call = asyncio.create_task(post(client, server, text))
                    for _ in range(chance.randrange(30)):
                        await asyncio.sleep(0)
                    call.cancel()
                    try:
                        assert (await call).body == text
                        answered += 1
                    except asyncio.CancelledError:
                        pass

            await asyncio.gather(*(caller(name) for name in range(40)))
            assert (await post(client, server, b"after")).body == b"after"
        assert 0 < answered < 1000
        await until(lambda: open_sockets() <= before)

    async def test_a_cancelled_handshake_leaves_nothing_behind(self, client: HttpFunctionClient) -> None:
        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        before = open_sockets()
        async with RawServer(mute) as server:
            target = Target(f"https://127.0.0.1:{server.port}/", (KEY,))
            calls = [asyncio.create_task(client.call(target, "introspect", "{}", {}, 60.0)) for _ in range(20)]
            await until(lambda: server.connections == 20)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await until(lambda: server.open_now == 0)
        await until(lambda: open_sockets() <= before)

    async def test_closing_ends_calls_that_are_under_way(self) -> None:
        async with RawServer(lambda reader, writer: asyncio.sleep(60)) as server:
            async with lean() as client:
                call = asyncio.create_task(post(client, server))
                await until(lambda: server.connections == 1)
            with pytest.raises(ConnectionBroken, match="closed"):
                await call
