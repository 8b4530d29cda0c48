"""What is not HTTP/1, as from a worker that was given the address of the API: 400, and no error in the log. A client
that has gone is none either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import pytest

from tests.support.grpc_backend import ADMIN
from tests.support.http_gateway import gateway
from tests.support.logged import complaints


async def test_a_preface_of_http_2_is_answered_with_400_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway({}) as client:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        status = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
    assert status.split()[1] == b"400"
    assert complaints(caplog) == []


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
        async with asyncio.timeout(10):
            while not any("has gone" in record.getMessage() for record in caplog.records):
                await asyncio.sleep(0.01)
    assert complaints(caplog) == []
