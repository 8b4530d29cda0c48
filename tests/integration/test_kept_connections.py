"""Connections that serve more than one request: no answer reaches another request, whatever a server sends and when."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import pytest
from runr_workflows import Workflows
from runr_workflows.serving.server import Server

from services.core.domain.envelope import introspect_request
from services.core.domain.op import FunctionFault
from services.executor.function_client import HttpFunctionClient, Target
from tests.support.fake_function import KEY, FakeFunction, Reply
from tests.support.function_calls import ask, client, post
from tests.support.raw_server import RawServer, answer, read_request

__all__ = ["client"]

OK_BODY = b'{"runr_workflow":"v1","ops":[{"op":"run_completed"}]}'


async def fault(client: HttpFunctionClient, server: RawServer) -> FunctionFault:
    with pytest.raises(FunctionFault) as raised:
        await post(client, server)
    return raised.value


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What our own SDK does."""
    while True:
        asked = await read_request(reader)
        writer.write(answer(asked.id.encode(), asked.id))


class TestUse:
    async def test_a_server_that_repeats_ids_is_served_by_one_connection(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(repeats_ids=True) as function:
            for _ in range(5):
                await ask(client, function)
            assert function.connections == 1
            ids = [request.headers["x-runr-request-id"] for request in function.requests]
        assert len(set(ids)) == 5
        assert all(len(each) == 32 and int(each, 16) >= 0 for each in ids)

    async def test_the_python_sdk_is_served_by_one_connection(self, client: HttpFunctionClient) -> None:
        workflows = Workflows(signing_key=KEY)
        with Server(workflows.handle_request, "127.0.0.1", 0) as server:
            target = Target(f"http://127.0.0.1:{server.port}/", (KEY,))
            for _ in range(5):
                assert (await client.call(target, "introspect", introspect_request(1), {}, 5.0)).status == 200
            # Refused, but not the end of the connection.
            wrong = Target(target.url, ("another key",))
            assert (await client.call(wrong, "introspect", introspect_request(1), {}, 5.0)).status == 401
            assert len(server._tcp.connections) == 1

    async def test_one_that_does_not_gets_one_request_a_connection_and_is_told(
        self, client: HttpFunctionClient
    ) -> None:
        async with FakeFunction() as function:
            for _ in range(3):
                await ask(client, function)
            assert function.connections == 3
            assert [request.headers.get("connection") for request in function.requests] == [None, "close", "close"]

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(body=OK_BODY, headers={"Connection": "close"}),
            Reply(body=OK_BODY, headers={"Content-Length": None, "Connection": "close"}),
            Reply(body=OK_BODY, headers={"Keep-Alive": "timeout=0"}),
        ],
        ids=["close", "until-close", "no-idle-time"],
    )
    async def test_a_connection_that_the_server_gives_up_is_not_used_again(
        self, client: HttpFunctionClient, reply: Reply
    ) -> None:
        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            fields = [f"{name}: {value}" for name, value in reply.headers.items() if value is not None]
            whole = answer(reply.body, asked.id, *fields)
            writer.write(
                whole if "Content-Length" not in reply.headers else whole.replace(b"Content-Length: 53", b"A: b")
            )
            await writer.drain()

        async with RawServer(once) as server:
            assert [await post(client, server) for _ in range(2)] == [OK_BODY] * 2
            assert server.connections == 2

    async def test_http_1_0_is_served_by_one_connection_a_request(self, client: HttpFunctionClient) -> None:
        async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            writer.write(answer(b"old", asked.id).replace(b"HTTP/1.1", b"HTTP/1.0"))
            await reader.read()

        async with RawServer(old) as server:
            assert [await post(client, server) for _ in range(2)] == [b"old"] * 2
            assert server.connections == 2

    async def test_failures_keep_a_connection_too(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(introspect=lambda _: Reply(500, b"no"), repeats_ids=True) as function:
            assert [(await ask(client, function)).status for _ in range(3)] == [500] * 3
            assert function.connections == 1

    async def test_an_idle_connection_is_closed_before_servers_do_it(self, client: HttpFunctionClient) -> None:
        closed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            writer.write(answer(OK_BODY, asked.id))
            await reader.read()
            closed.set()

        async with RawServer(serve) as server:
            await post(client, server)
            async with asyncio.timeout(1.9):  # gunicorn closes after 2 s
                await closed.wait()


class TestDoubled:
    """Each answer holds the id of its request, so a mix-up shows."""

    @pytest.mark.parametrize("moment", ["with-it", "while-idle", "at-the-next-request", "after-the-next-answer"])
    async def test_an_answer_sent_twice_reaches_nobody(self, client: HttpFunctionClient, moment: str) -> None:
        seen: list[str] = []
        taken, repeated = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            before = b""
            while True:
                asked = await read_request(reader)
                seen.append(asked.id)
                once = answer(asked.id.encode(), asked.id)
                if moment == "at-the-next-request":
                    writer.write(before)
                writer.write(once + once if moment == "with-it" else once)
                if moment == "after-the-next-answer":
                    writer.write(before)
                if moment == "while-idle":
                    await taken.wait()  # by now the client has given the connection back
                    taken.clear()
                    writer.write(once)
                    repeated.set()
                before = once

        async with RawServer(serve) as server:
            got: list[bytes | str] = []
            for _ in range(6):
                try:
                    got.append(await post(client, server))
                except FunctionFault as error:
                    got.append(error.name)
                if moment == "while-idle":
                    taken.set()
                    await repeated.wait()
                    repeated.clear()
                    assert server.connections == len(got)
        mixed = [(mine, theirs) for mine, theirs in zip(got, seen, strict=True) if mine != theirs.encode()]
        if moment == "at-the-next-request":
            assert mixed == [("ProtocolError", seen[1])]  # once: from then on the server gets one request a connection
        else:
            assert mixed == []

    async def test_an_answer_before_its_request_is_nobodys(self, client: HttpFunctionClient) -> None:
        """Nobody can answer a request that has not been sent: its id is not known."""

        async def eager(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            guessed = f"{int(asked.id, 16) + 1:032x}"
            writer.write(answer(b"mine", asked.id))
            await read_request(reader)
            writer.write(answer(b"forged", guessed))
            await reader.read()

        async with RawServer(eager) as server:
            assert await post(client, server) == b"mine"
            assert (await fault(client, server)).name == "ProtocolError"

    async def test_an_answer_without_an_id_on_a_kept_connection_is_a_fault(self, client: HttpFunctionClient) -> None:
        async def forgetful(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if server.connections == 1:
                asked = await read_request(reader)
                writer.write(answer(b"mine", asked.id))
            await read_request(reader)
            writer.write(answer(b"secret", status="502 Bad Gateway"))
            await reader.read()

        async with RawServer(forgetful) as server:
            await post(client, server)
            error = await fault(client, server)
            assert await post(client, server) == b"secret"  # alone on its connection it can only be its own
        assert error.name == "ProtocolError"
        assert "502" in error.message
        assert "secret" not in error.message

    async def test_another_id_on_a_new_connection_is_a_fault(self, client: HttpFunctionClient) -> None:
        async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(answer(b"of a cache", "0" * 32))
            await reader.read()

        async with RawServer(wrong) as server:
            assert (await fault(client, server)).name == "ProtocolError"

    @pytest.mark.parametrize("rest", [b"x", b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"])
    async def test_bytes_behind_an_answer_close_the_connection(self, client: HttpFunctionClient, rest: bytes) -> None:
        async def surplus(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await read_request(reader)
            writer.write(answer(asked.id.encode(), asked.id))
            await writer.drain()
            writer.write(rest)
            await reader.read()

        async with RawServer(surplus) as server:
            for number in range(1, 4):
                with contextlib.suppress(FunctionFault):  # where the rest came in the same segment
                    await post(client, server)
                assert server.connections == number


class TestStale:
    async def test_a_request_is_sent_once_when_a_kept_connection_ends_under_it(
        self, client: HttpFunctionClient
    ) -> None:
        requests = 0

        async def second_time_unlucky(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            while True:
                asked = await read_request(reader)
                requests += 1
                if requests == 2:
                    writer.transport.abort()
                    return
                writer.write(answer(b"fine", asked.id))

        async with RawServer(second_time_unlucky) as server:
            await post(client, server)
            assert (await fault(client, server)).name == "FunctionUnreachable"
            assert requests == 2
            assert await post(client, server) == b"fine"

    @pytest.mark.parametrize("sign", ["closed", "spoken"])
    async def test_what_the_loop_has_not_read_yet_is_seen_before_a_request_is_written(
        self, client: HttpFunctionClient, sign: str
    ) -> None:
        """The server closes, or says something, in a thread, while the loop of the client is held up."""
        go_on, done = threading.Event(), threading.Event()
        peers: list[socket.socket] = []
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            for _ in range(2):
                peer, _address = listener.accept()
                peers.append(peer)
                data = b""
                while b"\r\n\r\n" not in data or not data.endswith(b"}"):
                    data += peer.recv(65536)
                request_id = data.lower().split(b"x-runr-request-id: ")[1][:32].decode()
                peer.sendall(answer(OK_BODY, request_id))
                go_on.wait()
                if sign == "closed":
                    peer.close()
                else:
                    peer.sendall(answer(b"late", request_id))
                done.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        target = Target(f"http://127.0.0.1:{listener.getsockname()[1]}/", (KEY,))
        try:
            for _ in range(2):
                got = await client.call(target, "introspect", introspect_request(1), {}, 5.0)
                assert got.body == OK_BODY
                go_on.set()
                done.wait()
            thread.join()
        finally:
            for each in (listener, *peers):
                each.close()

    async def test_a_server_that_starts_again_costs_no_fault(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(repeats_ids=True) as function:
            for _ in range(10):
                assert (await ask(client, function)).status == 200
                await function.stop()
                await function.start()


class TestTime:
    async def test_each_request_has_its_own_time_on_a_kept_connection(self, client: HttpFunctionClient) -> None:
        waits = iter([0.0, 60.0, 0.0, 1.2, 0.0])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                asked = await read_request(reader)
                await asyncio.sleep(next(waits))
                writer.write(answer(b"fine", asked.id))

        async with RawServer(serve) as server:
            await post(client, server, timeout_s=60)
            with pytest.raises(FunctionFault, match=r"within 0\.2 s"):
                await post(client, server, timeout_s=0.2)
            await post(client, server, timeout_s=1)
            await post(client, server, timeout_s=60)
            await post(client, server, timeout_s=60)
            assert server.connections == 2
