"""`runr dev`: everything up in one command, accidents heal, two side by side, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.request import Request, urlopen

import asyncpg
import psutil
import pytest

from services.core.runtime.python_child import python_command, python_environ
from services.embedded.home import Home
from tests.support.homes import dev_home
from tests.support.waiting import eventually

START_S = 60.0
DEADLINE_S = 30.0
SERVICES = {"gateway", "ingest", "scheduler", "executor"}


def environ_for(home: Home) -> dict[str, str]:
    ours = ("RUNR_", "WORKFLOWS_", "DATABASE_URL", "NATS_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**python_environ(kept), "RUNR_HOME": str(home.path)}


def runr(home: Home, *arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        python_command("services.cli.main", *arguments),
        env={**environ_for(home), **given},
        capture_output=True,
        text=True,
        timeout=120,
    )


class Stack:
    """A running `runr dev`."""

    def __init__(self, home: Home, process: subprocess.Popen[bytes]) -> None:
        self.home = home
        self.process = process
        self.about: dict[str, Any] = home.recall("stack.json")
        self.tree = {child.pid: child for child in psutil.Process(process.pid).children(recursive=True)}

    def call(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.about['token']}", "Content-Type": "application/json"}
        with urlopen(Request(self.about["api_url"] + path, data=data, headers=headers), timeout=10) as answer:
            return json.load(answer)

    def children(self, module: str) -> set[int]:
        found = set()
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # a zombie is one of these
                found |= {child.pid} if module in child.cmdline() else set()
        return found

    def came_back(self, module: str, former: int) -> bool:
        return bool(self.children(module) - {former})

    def living_executors(self) -> list[int]:
        async def ask() -> list[int]:
            connection = await asyncpg.connect(self.about["database_url"])
            try:
                rows = await connection.fetch("select id from rt.owner where kind = 'executor' and not dead")
            finally:
                await connection.close()
            return [row["id"] for row in rows]

        return asyncio.run(ask())

    def becomes_another_version(self) -> None:
        async def change() -> None:
            connection = await asyncpg.connect(self.about["database_url"])
            try:
                await connection.execute("update public.runr_migration set digest = 'another'")
            finally:
                await connection.close()

        asyncio.run(change())

    def is_ready(self, service: str) -> bool:
        try:
            with urlopen(self.about["health"][service], timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def nothing_is_left(self) -> bool:
        return not any(process.is_running() and process.status() != "zombie" for process in self.tree.values())


@contextmanager
def dev(home: Home) -> Iterator[Stack]:
    process = subprocess.Popen(
        python_command("services.cli.main", "dev"),
        env=environ_for(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:

        def up() -> bool:
            assert process.poll() is None, "runr dev has ended"
            return bool(home.recall("stack.json"))

        eventually(up, "the stack is up", START_S)
        yield Stack(home, process)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


@pytest.fixture
def home() -> Iterator[Home]:
    with dev_home() as made:
        yield made


def test_data_and_token_survive_a_restart_and_sigterm_leaves_nothing(home: Home) -> None:
    with dev(home) as stack:
        (event_id,) = stack.call("/api/events", {"name": "order.created", "data": {"order_id": "o-1"}})["ids"]
        stack.process.terminate()
        assert stack.process.wait(DEADLINE_S) == 0
        assert stack.nothing_is_left()
        assert home.recall("stack.json") == {}
    with dev(home) as again:
        assert again.about["token"] == stack.about["token"]
        assert again.about["api_url"] == stack.about["api_url"]
        host, _, port = again.about["worker_url"].rpartition(":")
        socket.create_connection((host, int(port)), DEADLINE_S).close()
        assert again.call(f"/api/events/{event_id}")["name"] == "order.created"
        again.becomes_another_version()
        with dev_home() as other:
            refused = runr(other, "dev", DATABASE_URL=again.about["database_url"])
        assert refused.returncode == 1
        assert "the database that DATABASE_URL names belongs to another version of RunR" in refused.stderr
        assert "delete" not in refused.stderr
    refused = runr(home, "dev")
    assert refused.returncode == 1
    assert f"the database of {home.path} belongs to another version of RunR" in refused.stderr
    assert "or delete this one if nothing in it is needed any more" in refused.stderr


def test_whatever_is_killed_comes_back(home: Home) -> None:
    with dev(home) as stack:
        for service in sorted(SERVICES):
            (before,) = stack.children(service)
            os.kill(before, signal.SIGKILL)
            eventually(partial(stack.came_back, service, before), f"{service} runs again")
            eventually(partial(stack.is_ready, service), f"{service} is ready again")
            assert stack.children(service) == {home.recall("stack.json")["pids"][service]}
            if service == "executor":  # it is ready once it has buried the one before
                assert len(stack.living_executors()) == 1
        (before,) = stack.children("executor")
        (server,) = stack.children("services.cli.fork_server")
        os.kill(server, signal.SIGKILL)
        eventually(partial(stack.came_back, "services.cli.fork_server", server), "there is a fork server again")
        assert all(stack.is_ready(service) for service in SERVICES)
        os.kill(before, signal.SIGKILL)
        eventually(partial(stack.came_back, "executor", before), "the executor runs once more")
        (keeper,) = stack.children("services.embedded.keeper")
        os.kill(keeper, signal.SIGKILL)
        eventually(partial(stack.came_back, "services.embedded.keeper", keeper), "the keeper runs again")
        eventually(lambda: all(stack.is_ready(service) for service in SERVICES), "all are ready again")
        assert stack.call("/api/events", {"name": "order.created"})["events"][0]["duplicate"] is False
        found = runr(home, "doctor")
        assert found.returncode == 0, found.stdout + found.stderr
        assert {f"ok    {service} is ready" for service in SERVICES} <= set(found.stdout.splitlines())


def test_the_death_of_dev_leaves_nothing(home: Home) -> None:
    with dev(home) as stack:
        stack.process.kill()
        stack.process.wait()
        eventually(stack.nothing_is_left, "services and servers are gone")


def test_two_stacks_run_side_by_side_but_not_in_one_home(home: Home) -> None:
    with dev_home() as other, dev(home) as one, dev(other) as two:
        assert one.about["api_url"] != two.about["api_url"]
        (event_id,) = one.call("/api/events", {"name": "only.here"})["ids"]
        assert [event["id"] for event in one.call("/api/events?name=only")["data"]] == [event_id]
        assert two.call("/api/events?name=only")["data"] == []
        refused = runr(home, "dev")
        assert refused.returncode == 1
        assert f"already runs in {home.path} (process {one.process.pid})" in refused.stderr
        assert home.recall("stack.json") == one.about


def test_a_function_without_scheme_is_refused_at_once(home: Home) -> None:
    for given in ("127.0.0.1:8001", "localhost:8001", "http://"):
        refused = runr(home, "dev", "--function", given)
        assert refused.returncode == 2
        assert f"--function {given}: not a URL; write it with its scheme" in refused.stderr


def test_doctor_without_a_stack_says_what_is_missing(home: Home) -> None:
    found = runr(home, "doctor")
    assert found.returncode == 2
    assert f"no stack of `runr dev` in {home.path}: start one, go to its folder, set RUNR_HOME" in found.stderr


def test_wrong_usage_ends_with_two(home: Home) -> None:
    assert runr(home, "serve", "everything").returncode == 2
    assert runr(home).returncode == 2
