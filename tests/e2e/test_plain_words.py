"""What the command line says when the database, NATS or a port is not as it must be: a sentence, no traceback."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from services.cli.doctor import service_checks
from services.core.runtime.health import Health, NotReady
from services.core.runtime.health_server import HealthServer
from services.core.runtime.parse import Address
from services.core.runtime.python_child import python_command, python_environ
from services.embedded.stack import EmbeddedStack
from tests.support.postgres import Databases

KEY = base64.b64encode(bytes(32)).decode()
NOBODY_THERE = "127.0.0.1:1"


class Needs(NamedTuple):
    """What a service needs: URLs."""

    postgres: str
    nats: str


@pytest.fixture(scope="module")
def needs(databases: Databases, nats_stack: EmbeddedStack) -> Iterator[Needs]:
    url = databases.make()
    assert runr("migrate", DATABASE_URL=url).returncode == 0
    yield Needs(url, nats_stack.urls["nats"])
    databases.drop(url)


def runr(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    ours = ("RUNR_", "WORKFLOWS_", "DATABASE_URL", "NATS_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        python_command("services.cli.main", *arguments),
        env={**python_environ(kept), "RUNR_HOME": "/nonexistent", **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def wrong(needs: Needs) -> list[tuple[str, str]]:
    """URLs that do not work, each with what must be said."""
    url = needs.postgres
    parts = urlsplit(url)
    return [
        (url.replace(str(parts.password), "guess"), "password authentication failed"),
        (url.removesuffix(parts.path) + "/missing", 'database "missing" does not exist'),
    ]


def test_a_database_that_refuses_is_told_in_a_sentence(needs: Needs) -> None:
    for url, said in wrong(needs):
        for arguments in (["migrate"], ["serve", "scheduler"]):
            ended = runr(*arguments, DATABASE_URL=url, NATS_URL=needs.nats, RUNR_ENCRYPTION_KEY=KEY)
            assert ended.returncode == 1, ended.stderr
            assert said in ended.stderr.replace('\\"', '"')
            assert f"127.0.0.1:{urlsplit(url).port}" in ended.stderr
            assert "Traceback" not in ended.stderr
            assert "guess" not in ended.stderr


def test_a_taken_port_is_told_in_a_sentence(needs: Needs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = runr(
            "serve",
            "scheduler",
            DATABASE_URL=needs.postgres,
            NATS_URL=needs.nats,
            RUNR_ENCRYPTION_KEY=KEY,
            RUNR_HEALTH_ADDR=address,
        )
    assert ended.returncode == 1
    assert "address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_doctor_knows_the_four_services_in_one_process() -> None:
    health = Health()
    for name in ("ingest", "gateway"):
        health.part(name)

    async def away() -> None:
        raise NotReady("the database does not answer")

    health.part("executor").register("database", away)
    health.set_started()
    server = HealthServer(health, Address("127.0.0.1", 0), "all")
    await server.start()
    try:
        asked = {"gateway": f"http://{server.address}/readyz", "ingest": f"http://{NOBODY_THERE}/readyz"}
        found = {finding.subject: finding.reason async for finding in service_checks.services(asked)}
    finally:
        await server.stop()
    assert found == {
        "process is ready": "",
        "ingest is ready": "",
        "gateway is ready": "",
        "executor is ready": "database: the database does not answer",
    }


def test_doctor_tells_soon_and_plainly_what_is_away() -> None:
    began = time.monotonic()
    found = runr(
        "doctor",
        DATABASE_URL=f"postgresql://runr:hidden@{NOBODY_THERE}/runr",
        NATS_URL=f"nats://u:hidden@{NOBODY_THERE}",
    )
    assert time.monotonic() - began < 15
    assert found.returncode == 1
    assert f"FAIL  postgres answers: the database at {NOBODY_THERE} cannot be reached" in found.stdout
    assert f"FAIL  nats answers: {NOBODY_THERE}: nobody listens there; check NATS_URL" in found.stdout
    assert found.stderr == ""
    assert "hidden" not in found.stdout
