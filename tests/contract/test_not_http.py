"""What is not HTTP/1, as from a worker that was given the address of the API: 400, and no error in the log."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.support.http_gateway import gateway


async def test_a_preface_of_http_2_is_answered_with_400_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway({}) as client:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        status = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
    assert status.split()[1] == b"400"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
