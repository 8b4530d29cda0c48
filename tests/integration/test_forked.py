"""Services that are forked from one imported process: their ends, their signals, and what either side's death does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from services.cli.child_process import ChildProcess
from services.cli.forked import Forked, ForkedChild
from services.core.runtime.python_child import python_command, python_environ
from services.embedded.home import Home
from tests.support.homes import temporary_home
from tests.support.waiting import until

WAITING = python_command("services.cli.main", "serve", "scheduler")
WRONG = python_command("services.cli.main", "serve", "nothing")
GUARD_S = 20.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a fork server on Linux only")


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home("forked") as made:
        yield made


@pytest.fixture
async def forked() -> AsyncIterator[Forked]:
    made = Forked(os.environ)
    made.open()
    yield made
    made.close()


class Waiting:
    """A service that waits for its database, which is nowhere."""

    def __init__(self, home: Home) -> None:
        self.health = f"127.0.0.1:{home.port('health')}"
        self.environ = {
            **python_environ(os.environ),
            "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{home.port('nowhere')}/none",
            "NATS_URL": f"nats://127.0.0.1:{home.port('nowhere')}",
            "RUNR_ENCRYPTION_KEY": home.key("encryption"),
            "RUNR_HEALTH_ADDR": self.health,
            "RUNR_GRACE": "5s",
        }

    async def is_up(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(f"http://{self.health}/healthz") as answer:
                return answer.status == 200
        return False

    async def start(self, forked: Forked) -> ChildProcess:
        child = await forked.spawn(WAITING, self.environ, ())
        await until(self.is_up)
        return child


async def ended(child: ChildProcess) -> int:
    async with asyncio.timeout(GUARD_S):
        return await child.wait()


async def gone(pid: int) -> None:
    async def is_gone() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    await until(is_gone)


def server_of(child: ChildProcess) -> psutil.Process:
    parent = psutil.Process(child.pid).parent()
    assert parent is not None
    assert "services.cli.fork_server" in parent.cmdline()
    return parent


async def test_a_forked_child_is_a_service_of_its_own_and_drains_by_a_signal(home: Home, forked: Forked) -> None:
    child = await Waiting(home).start(forked)
    assert isinstance(child, ForkedChild)
    process = psutil.Process(child.pid)
    assert [word for word in process.cmdline() if word] == ["runr", "serve", "scheduler"]
    assert os.getsid(child.pid) == child.pid
    assert child.returncode is None
    child.terminate()
    assert await ended(child) == child.returncode == 0
    child.terminate()  # to nobody


async def test_its_exit_code_is_told(forked: Forked) -> None:
    children = [await forked.spawn(WRONG, os.environ, ()) for _ in range(3)]
    assert all(isinstance(child, ForkedChild) for child in children)
    assert [await ended(child) for child in children] == [2, 2, 2]


async def test_a_kill_is_told(home: Home, forked: Forked) -> None:
    child = await Waiting(home).start(forked)
    child.kill()
    assert await ended(child) == -signal.SIGKILL


async def test_what_inherits_or_is_no_command_of_ours_is_executed(forked: Forked) -> None:
    read, write = os.pipe()
    try:
        heir = await forked.spawn(WRONG, os.environ, (read,))
        stranger = await forked.spawn(["cat"], os.environ, ())
        assert not isinstance(heir, ForkedChild)
        assert not isinstance(stranger, ForkedChild)
        assert await ended(heir) == 2
        stranger.kill()
        await ended(stranger)
    finally:
        os.close(read)
        os.close(write)


async def test_a_service_lives_on_without_the_server_and_the_next_is_forked_by_another(
    home: Home, forked: Forked
) -> None:
    child = await Waiting(home).start(forked)
    server = server_of(child)
    server.kill()
    await gone(server.pid)
    other = await forked.spawn(WRONG, os.environ, ())
    assert await ended(other) == 2
    assert psutil.pid_exists(child.pid)
    assert child.returncode is None
    child.kill()
    assert await ended(child) == -signal.SIGKILL
    third = await Waiting(home).start(forked)
    assert isinstance(third, ForkedChild)
    assert server_of(third).pid != server.pid
    third.kill()
    await ended(third)


async def test_the_end_of_a_child_is_seen_though_the_server_stands_still(home: Home, forked: Forked) -> None:
    child = await Waiting(home).start(forked)
    server = server_of(child)
    server.suspend()
    child.kill()
    assert await ended(child) == -signal.SIGKILL
    server.resume()
    assert await ended(await forked.spawn(WRONG, os.environ, ())) == 2


async def test_a_start_that_nobody_waits_for_any_more_ends(home: Home, forked: Forked) -> None:
    first = await Waiting(home).start(forked)
    server = server_of(first)
    server.suspend()
    environ = {**Waiting(home).environ, "RUNR_HEALTH_ADDR": f"127.0.0.1:{home.port('other')}"}
    start = asyncio.create_task(forked.spawn(WAITING, environ, ()))
    await asyncio.sleep(0)  # it has asked, and waits
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    server.resume()

    async def only_the_first() -> bool:
        return {each.pid for each in server.children()} == {first.pid}

    # Answered in order: when the next is forked, the abandoned one has been.
    assert await ended(await forked.spawn(WRONG, os.environ, ())) == 2
    await until(only_the_first)
    first.kill()
    await ended(first)


SUPERVISOR = """
import asyncio, json, os, sys
from services.cli.forked import Forked
async def main():
    forked = Forked(os.environ)
    forked.open()
    child = await forked.spawn(json.loads(sys.argv[1]), os.environ, ())
    print(child.pid, flush=True)
    await child.wait()
asyncio.run(main())
"""


async def test_nothing_outlives_a_killed_supervisor(home: Home, tmp_path: Path) -> None:
    script = tmp_path / "supervisor.py"
    script.write_text(SUPERVISOR)
    waiting = Waiting(home)
    command = [sys.executable, str(script), json.dumps(WAITING)]
    supervisor = subprocess.Popen(command, env=waiting.environ, stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    child = int(await asyncio.to_thread(supervisor.stdout.readline))
    await until(waiting.is_up)
    server = psutil.Process(child).ppid()
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    await gone(server)
    await gone(child)
