"""The HTTP client on its way to a function: names, addresses and TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from services.core.domain.envelope import introspect_request
from services.core.domain.op import FunctionFault
from services.executor.function_client import HttpFunctionClient, Target
from services.executor.lean_http.names import SharedLookups
from tests.support.certificate import self_signed
from tests.support.fake_function import KEY, FakeFunction, Reply
from tests.support.function_calls import ask, client, localhost, make_client
from tests.support.raw_server import RawServer, answer, read_request

__all__ = ["client"]


class TestTls:
    async def test_a_name_is_verified_and_asked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        context = self_signed(tmp_path, "functions.test")
        context.set_alpn_protocols(["h2", "http/1.1"])
        asked_for: list[str | None] = []

        def on_name(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            asked_for.append(name)

        context.sni_callback = on_name
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
        async with (
            make_client(lookup=localhost) as client,
            FakeFunction(tls=context, repeats_ids=True) as function,
        ):
            for host in ("functions.test", "functions.test", "functions.test.", "127.0.0.1"):
                target = Target(f"https://{host}:{function.port}/", (KEY,))
                got = await client.call(target, "introspect", introspect_request(1), {}, 5.0)
                assert got.status == 200
            other = Target(f"https://other.test:{function.port}/", (KEY,))
            with pytest.raises(FunctionFault, match="Hostname mismatch"):
                await client.call(other, "introspect", introspect_request(1), {}, 5.0)
            assert function.requests[2].headers["host"] == f"functions.test:{function.port}"
        assert asked_for == ["functions.test", "functions.test", None, "other.test"]

    async def test_connections_are_kept_but_not_shared_with_those_who_verify(
        self, client: HttpFunctionClient, tmp_path: Path
    ) -> None:
        async with FakeFunction(tls=self_signed(tmp_path), repeats_ids=True) as function:
            unverified = Target(function.url, (KEY,), verify_tls=False)
            for _ in range(3):
                assert (await client.call(unverified, "introspect", introspect_request(1), {}, 5.0)).status == 200
            assert function.connections == 1
            with pytest.raises(FunctionFault, match="certificate"):
                await ask(client, function)
            assert len(function.requests) == 3

    async def test_big_bodies_both_ways(self, client: HttpFunctionClient, tmp_path: Path) -> None:
        reply = Reply(body=b"y" * 8_000_000)
        async with FakeFunction(introspect=lambda _: reply, tls=self_signed(tmp_path), repeats_ids=True) as function:
            text = introspect_request(1)[:-1] + ',"pad":"' + "x" * 8_000_000 + '"}'
            target = Target(function.url, (KEY,), verify_tls=False)
            for _ in range(2):
                assert (await client.call(target, "introspect", text, {}, 20.0)).body == reply.body
            assert function.connections == 1

    async def test_http_1_1_is_agreed_on(self, client: HttpFunctionClient, tmp_path: Path) -> None:
        context = self_signed(tmp_path)
        context.set_alpn_protocols(["h2", "http/1.1"])
        agreed: list[str | None] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            agreed.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
            asked = await read_request(reader)
            writer.write(answer(b"fine", asked.id))
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            await client.call(Target(url, (KEY,), verify_tls=False), "introspect", "{}", {}, 5.0)
        assert agreed == ["http/1.1"]


class TestReach:
    async def test_an_ipv6_literal(self, client: HttpFunctionClient) -> None:
        hosts: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                asked = await read_request(reader)
                hosts.append(asked.fields["host"])
                writer.write(answer(b"six", asked.id))

        async with RawServer(serve, host="::1") as server:
            for _ in range(2):
                got = await client.call(Target(server.url, (KEY,)), "introspect", "{}", {}, 5.0)
                assert got.body == b"six"
            assert server.connections == 1
            assert hosts == [f"[::1]:{server.port}"] * 2

    async def test_an_address_that_does_not_answer_delays_the_next_one_a_little(self) -> None:
        """A listener whose queue is full is silent, as a machine that is switched off."""
        with socket.create_server(("127.0.0.2", 0), backlog=0) as silent:
            port = silent.getsockname()[1]
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.2", port))
            try:
                function = FakeFunction()
                function.port = port
                names = _names("127.0.0.2", "127.0.0.1")
                async with function, make_client(lookup=names, connect_timeout_s=5.0) as client:
                    started = time.monotonic()
                    target = Target(f"http://functions.test:{port}/", (KEY,))
                    got = await client.call(target, "introspect", introspect_request(1), {}, 5.0)
                assert got.status == 200
                assert time.monotonic() - started < 2
            finally:
                for filler in fillers:
                    filler.close()

    async def test_connections_that_open_together_share_one_lookup(self) -> None:
        asked: list[str] = []

        async def names(host: str) -> list[str]:
            asked.append(host)
            await asyncio.sleep(0)
            return ["127.0.0.1"]

        async with FakeFunction() as function, make_client(lookup=names) as client:
            target = Target(f"http://functions.test:{function.port}/", (KEY,))
            await asyncio.gather(
                *(client.call(target, "introspect", introspect_request(1), {}, 5.0) for _ in range(20))
            )
        assert asked == ["functions.test"]

    async def test_who_gives_up_a_lookup_does_not_take_it_from_others(self) -> None:
        answered = asyncio.Event()

        async def names(host: str) -> list[str]:
            await answered.wait()
            return ["127.0.0.1"]

        lookups = SharedLookups(names)
        first, second = asyncio.create_task(lookups("a.test")), asyncio.create_task(lookups("a.test"))
        await asyncio.sleep(0)
        first.cancel()
        answered.set()
        assert await second == ["127.0.0.1"]
        assert first.cancelled()

    async def test_a_failed_lookup_is_asked_again(self) -> None:
        answers = iter([OSError("no such name"), None])

        async def names(host: str) -> list[str]:
            error = next(answers)
            if error is not None:
                raise error
            return ["127.0.0.1"]

        lookups = SharedLookups(names)
        with pytest.raises(OSError, match="no such name"):
            await lookups("a.test")
        assert await lookups("a.test") == ["127.0.0.1"]


def _names(*addresses: str) -> Any:
    async def names(_: str) -> list[str]:
        return list(addresses)

    return names
