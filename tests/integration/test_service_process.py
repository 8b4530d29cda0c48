"""A service as a process: its settings, its health, its end, and the supervisor that keeps it running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from services.cli.children import ChildRefused, Children, ChildSpec
from services.core.runtime.parent import PARENT_PIPE
from services.core.runtime.python_child import python_command, python_environ
from services.embedded.home import Home
from tests.support.homes import temporary_home
from tests.support.waiting import until

DEADLINE_S = 20.0
COMMAND = python_command("tests.support.plain_service")


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home("service") as made:
        yield made


class Plain:
    """One plain service and what it needs."""

    def __init__(self, home: Home, **environ: str) -> None:
        self.health = f"127.0.0.1:{home.port('health')}"
        self.notes = home.path / "notes"
        self.notes.touch()
        self.environ = {
            **python_environ(os.environ),
            "RUNR_HEALTH_ADDR": self.health,
            "PLAIN_NOTES": str(self.notes),
            **environ,
        }

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(COMMAND, env=self.environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def spec(self) -> ChildSpec:
        return ChildSpec(name="plain", command=COMMAND, environ=self.environ, ready_url=f"http://{self.health}/readyz")


async def ready(plain: Plain) -> None:
    await Children([plain.spec()], grace_s=1).wait_ready(DEADLINE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_ends_with_zero(home: Home, number: signal.Signals) -> None:
    plain = Plain(home)
    process = plain.start()
    await ready(plain)
    process.send_signal(number)
    _, errors = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    assert process.returncode == 0
    assert plain.notes.read_text() == f"started {process.pid}\ndrained {process.pid}\n"
    lines = [json.loads(line) for line in errors.decode().splitlines()]
    assert {"message": "draining", "reason": number.name}.items() <= lines[-1].items()
    assert {line["service"] for line in lines} == {"plain"}


async def test_the_death_of_the_parent_drains(home: Home) -> None:
    plain = Plain(home, **{PARENT_PIPE: "1"})
    process = plain.start()
    await ready(plain)
    assert process.stdin is not None
    process.stdin.close()
    await asyncio.to_thread(process.wait, DEADLINE_S)
    assert "drained" in plain.notes.read_text()
    assert process.stderr is not None
    process.stderr.close()


async def test_a_drain_that_never_ends_is_cut_off_after_the_grace(home: Home) -> None:
    plain = Plain(home, PLAIN_STUCK="drain", RUNR_GRACE="0.2s")
    process = plain.start()
    await ready(plain)
    async with aiohttp.ClientSession() as client:
        process.terminate()
        await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"http://{plain.health}/healthz")
    assert process.returncode == 1


def test_wrong_settings_stop_the_start_with_the_name_of_the_variable(home: Home) -> None:
    done = subprocess.run(
        COMMAND,
        env={**python_environ(os.environ), "RUNR_GRACE": "soon", "PLAIN_STUCK": "x"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "RUNR_GRACE must be a duration from 0 s to 3600 s" in done.stderr


async def test_a_killed_child_comes_back_and_stop_ends_it(home: Home) -> None:
    plain = Plain(home)
    told: list[dict[str, int]] = []
    children = Children([plain.spec()], grace_s=5, changed=lambda: told.append(children.pids()))
    keeping = asyncio.create_task(children.keep())
    await children.wait_ready(DEADLINE_S)
    first = children.pids()["plain"]
    os.kill(first, signal.SIGKILL)
    await until(lambda: children.pids().get("plain", first) != first)
    await children.wait_ready(DEADLINE_S)
    second = children.pids()["plain"]
    await children.stop()
    await keeping
    assert not psutil.pid_exists(second)
    assert plain.notes.read_text() == f"started {first}\nstarted {second}\ndrained {second}\n"
    assert told == [{"plain": first}, {}, {"plain": second}, {}]


async def test_a_child_with_wrong_settings_is_not_started_again(home: Home) -> None:
    plain = Plain(home, PLAIN_STUCK="nonsense")
    children = Children([plain.spec()], grace_s=5)
    with pytest.RaisesGroup(ChildRefused):
        await children.keep()
    assert plain.notes.read_text() == ""


async def test_what_is_not_ready_is_named_with_its_reason(home: Home) -> None:
    with pytest.raises(TimeoutError, match="plain is not ready: ClientConnectorError"):
        await Children([Plain(home).spec()], grace_s=1).wait_ready(0)


OWNER = """
import asyncio, sys, os
from services.cli.children import Children, ChildSpec
async def main():
    spec = ChildSpec(name="plain", command=sys.argv[2:], environ=os.environ, ready_url=sys.argv[1])
    children = Children([spec], grace_s=5)
    keeping = asyncio.create_task(children.keep())
    await children.wait_ready(20)
    print(children.pids()["plain"], flush=True)
    await keeping
asyncio.run(main())
"""


async def test_children_do_not_outlive_a_killed_supervisor(home: Home, tmp_path: Path) -> None:
    plain = Plain(home)
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    owner = subprocess.Popen(
        [COMMAND[0], str(script), plain.spec().ready_url, *COMMAND], env=plain.environ, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    child = int(await asyncio.to_thread(owner.stdout.readline))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    await until(lambda: not psutil.pid_exists(child))
    assert plain.notes.read_text() == f"started {child}\ndrained {child}\n"
