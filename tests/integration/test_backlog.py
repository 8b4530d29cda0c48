"""The backlog of executors as those see it who scale and watch them: KEDA and the exporter for Prometheus ask NATS."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest

from services.core.bus.stream import ensure_ready_stream
from services.core.bus.subjects import CONSUMER, Subjects
from services.embedded.binaries import find_nats
from tests.support.manifests import DEPLOY, documents, of_kind

HINTS = 5
(SCALED,) = of_kind(documents(DEPLOY / "kubernetes/components/keda/executor.yaml"), "ScaledObject").values()
METADATA = SCALED["spec"]["triggers"][0]["metadata"]
QUERIES = {
    # KEDA's scaler nats-jetstream, and prometheus-nats-exporter with -jsz=all.
    "keda": f"acc={METADATA['account']}&consumers=true&config=true",
    "exporter": "consumers=true&config=true",
}


@pytest.fixture
async def monitoring(tmp_path: Path) -> AsyncIterator[str]:
    """The monitoring URL of a NATS in whose ready stream hints wait."""
    ports = _free_ports()
    arguments = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p", str(ports[0]), "-m", str(ports[1])]
    process = await asyncio.create_subprocess_exec(find_nats(os.environ), *arguments, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(30):
            while b"Server is ready" not in await process.stderr.readline():
                assert process.returncode is None
        client = await nats.connect(f"nats://127.0.0.1:{ports[0]}")
        await ensure_ready_stream(client, Subjects())
        for _ in range(HINTS):
            await client.jetstream().publish(Subjects().ready(3), b"")
        await client.close()
        yield f"http://127.0.0.1:{ports[1]}"
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize("asker", QUERIES)
async def test_hints_that_wait_are_the_backlog(monitoring: str, asker: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{monitoring}/jsz?{QUERIES[asker]}") as answer:
        told: Any = await answer.json()

    (account,) = [each for each in told["account_details"] if each["name"] == METADATA["account"]]
    (stream,) = [each for each in account["stream_detail"] if each["name"] == METADATA["stream"]]
    (consumer,) = [each for each in stream["consumer_detail"] if each["name"] == METADATA["consumer"]]
    assert (consumer["num_pending"], consumer["num_ack_pending"]) == (HINTS, 0)
    assert consumer["name"] == CONSUMER


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], other.getsockname()[1]]
