"""What is not HTTP/1, as from a worker that was given the address of the API: a problem, and no error in the log. A
client that has gone is none either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import pytest
from multidict import CIMultiDict

from tests.support.grpc_backend import ADMIN
from tests.support.http_gateway import Client, Reply, gateway
from tests.support.logged import complaints
from tests.support.waiting import until

SECRET = "rt_secret-of-somebody"
BOTH = "Content-Length: 1\r\nTransfer-Encoding: chunked"
MANY = f"h: {SECRET}\r\n" * 200
HEAD = f"GET /api/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n"


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(": ")
    return name, value


async def _answered(client: Client, sent: bytes) -> Reply:
    """What is answered to these bytes, after which the connection ends."""
    reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
    writer.write(sent)
    async with asyncio.timeout(30):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    lines = head.decode().split("\r\n")
    return Reply(int(lines[0].split()[1]), CIMultiDict([_header(line) for line in lines[1:]]), body)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="http2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(f"GET /{SECRET} with spaces HTTP/1.1\r\n\r\n".encode(), id="spaces"),
        pytest.param(f"GET /{SECRET} HTTP/7.7\r\n\r\n".encode(), id="version"),
        pytest.param(f"GET http://[{SECRET}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode(), id="url"),
        pytest.param(
            f"{HEAD}bare: line\nfeed: yes\r\n\r\n".encode().replace(b"\r\nAuth", b"\nAuth"), id="bare_line_feed"
        ),
        pytest.param(f"{HEAD}bro ken: x\r\n\r\n".encode(), id="name_of_a_header"),
        pytest.param(f"{HEAD}x: a\0b\r\n\r\n".encode(), id="nul"),
        pytest.param(f"{HEAD}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx".encode(), id="two_lengths"),
        pytest.param(
            f"{HEAD}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(), id="length_and_chunked"
        ),
        pytest.param(
            f"{HEAD}{''.join(f'h{n}: {SECRET}{chr(13)}{chr(10)}' for n in range(200))}\r\n".encode(), id="many_headers"
        ),
        pytest.param(f"{HEAD}big: {SECRET}{'x' * 20_000}\r\n\r\n".encode(), id="long_header"),
        pytest.param(f"GET /{SECRET}{'x' * 20_000} HTTP/1.1\r\n\r\n".encode(), id="long_path"),
    ],
)
async def test_what_is_no_request_is_a_problem_that_shows_nothing_of_it(
    caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    caplog.set_level(logging.DEBUG)
    async with gateway({}) as client:
        reply = await _answered(client, sent)
    assert reply.problem(400)["type"].endswith("/not-http")
    assert reply.headers["Connection"] == "close"
    assert SECRET.encode() not in reply.body
    assert SECRET not in caplog.text
    assert complaints(caplog) == []


async def test_what_nobody_can_promise_is_a_problem_too() -> None:
    async with gateway({}) as client:
        for path in ("/api/session", "/nowhere"):
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: {SECRET}\r\n\r\n"
            reply = await _answered(client, head.encode())
            assert reply.problem(417)["type"].endswith("/unknown-expectation")
            assert SECRET.encode() not in reply.body


async def test_what_is_no_request_after_one_is_a_problem() -> None:
    async with gateway({}) as client:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        async with asyncio.timeout(30):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            writer.write(f"GET {SECRET}".encode() + b" \0\r\n\r\n")
            _, _, after = (await reader.read()).partition(b" 400 ")
        writer.close()
    assert b"application/problem+json" in after
    assert SECRET.encode() not in after


@pytest.mark.parametrize("sent", [b"Content-Length: 1000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n100\r\n{"])
@pytest.mark.parametrize("linger_s", [None, 0], ids=["closes", "resets"])
async def test_a_client_that_goes_in_the_middle_of_its_body_is_no_error(
    caplog: pytest.LogCaptureFixture, sent: bytes, linger_s: int | None
) -> None:
    caplog.set_level(logging.DEBUG, "services.gateway")
    async with gateway({}) as client:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        head = "POST /api/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
        writer.write(f"{head}Authorization: Bearer {ADMIN}\r\n".encode() + sent)
        await asyncio.wait_for(reader.readline(), 10)  # its body is being read
        if linger_s is not None:
            linger = struct.pack("ii", 1, linger_s)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await until(lambda: any("has gone" in record.getMessage() for record in caplog.records))
    assert complaints(caplog) == []
