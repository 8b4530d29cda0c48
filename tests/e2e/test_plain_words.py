"""What the command line says when the database, NATS or a port is not as it must be: a sentence, no traceback."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
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


def test_a_database_that_refuses_is_told_in_a_sentence(needs: Needs, tmp_path: Path) -> None:
    for url, said in wrong(needs):
        for arguments in (["migrate"], ["serve", "scheduler"], ["dev"]):
            settings = {"NATS_URL": needs.nats, "RUNR_ENCRYPTION_KEY": KEY, "RUNR_HOME": str(tmp_path / "home")}
            ended = runr(*arguments, DATABASE_URL=url, **settings)
            assert ended.returncode == 1, ended.stderr
            assert said in ended.stderr.replace('\\"', '"')
            assert f"127.0.0.1:{urlsplit(url).port}" in ended.stderr
            assert "Traceback" not in ended.stderr
            assert "guess" not in ended.stderr


def test_dev_tells_in_a_sentence_what_it_cannot_start_with(needs: Needs, tmp_path: Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.touch()
    at, url = {"NATS_URL": needs.nats, "RUNR_HOME": str(tmp_path / "home")}, needs.postgres
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        in_use = f"cannot listen on {address}: Address already in use; RUNR_EXECUTOR_ADDR chooses another address"
        for code, said, settings in (
            (
                1,
                "the database at 127.0.0.1:1 cannot be reached",
                at | {"DATABASE_URL": f"postgresql://{NOBODY_THERE}/r"},
            ),
            (2, "DATABASE_URL must be a URL", at | {"DATABASE_URL": "nonsense"}),
            (2, "NATS_URL must be a URL", at | {"DATABASE_URL": url, "NATS_URL": "nonsense"}),
            (1, f"the folder {no_folder} cannot be made: File exists", at | {"RUNR_HOME": str(no_folder)}),
            (1, in_use, at | {"DATABASE_URL": url, "RUNR_EXECUTOR_ADDR": address}),
        ):
            ended = runr("dev", **settings)
            assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
            assert ended.stderr.startswith(f"runr dev: {said}")
            assert ended.stderr.count("\n") == 1


def test_a_service_tells_why_it_waits_for_the_database(needs: Needs) -> None:
    command = python_command("services.cli.main", "serve", "ingest")
    settings = {"DATABASE_URL": f"postgresql://{NOBODY_THERE}/r", "NATS_URL": needs.nats, "RUNR_ENCRYPTION_KEY": KEY}
    environ = {**python_environ(os.environ), **settings, "RUNR_HEALTH_ADDR": "127.0.0.1:0"}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "waiting for the database" in line)
        process.terminate()
    assert "the database at 127.0.0.1:1 cannot be reached: Connection refused" in told


def test_a_taken_port_is_told_in_a_sentence(needs: Needs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = {"DATABASE_URL": needs.postgres, "NATS_URL": needs.nats, "RUNR_ENCRYPTION_KEY": KEY}
        settings |= {"RUNR_HEALTH_ADDR": "127.0.0.1:0"}
        for service, variable, said in (
            ("scheduler", "RUNR_HEALTH_ADDR", "Address already in use; RUNR_HEALTH_ADDR chooses another address"),
            ("gateway", "RUNR_HTTP_ADDR", "Address already in use; RUNR_HTTP_ADDR chooses another address"),
            ("scheduler", "RUNR_GRPC_ADDR", "it is taken, or not an address of this machine; RUNR_GRPC_ADDR chooses"),
        ):
            ended = runr("serve", service, **settings | {variable: address})
            assert ended.returncode == 1
            assert f"start failed: cannot listen on {address}: {said}" in ended.stderr
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
