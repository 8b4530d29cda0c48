"""One process of the engine as a test handles it: started, killed, frozen, started again, and never left behind.

A child holds the read end of a pipe as its stdin and ends when this process is gone. A frozen one cannot notice; its
guard can, and lets it go on then.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp

from services.core.runtime.parent import PARENT_PIPE
from services.core.runtime.python_child import python_command, python_environ
from tests.support import forked

READY_S = 60.0
END_S = 60.0

_POLL_S = 0.02
_GUARD = "import os, signal, sys; sys.stdin.read(); os.kill(int(sys.argv[1]), signal.SIGCONT)"


class Child:
    """`python -m services.<service>`, or another command, with its health address and its log file."""

    def __init__(
        self,
        name: str,
        service: str,
        *,
        environ: Mapping[str, str],
        health: str,
        log: Path,
        command: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self._command = command or python_command(f"services.{service}")
        self.service = service
        self.health = health
        self._environ = {**python_environ(environ), "RUNR_HEALTH_ADDR": health, PARENT_PIPE: "1"}
        self._log = log
        self._process: forked.Process | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        assert self.runs, f"{self.name} does not run"
        assert self._process is not None
        return self._process.pid

    @contextmanager
    def environ(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Meanwhile whatever is started has these settings too."""
        before = self._environ
        self._environ = {**before, **settings}
        try:
            yield
        finally:
            self._environ = before

    @property
    def runs(self) -> bool:
        """Whether there is a process, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; `ready` waits for it."""
        assert not self.runs, f"{self.name} runs already"
        with self._log.open("ab") as log:
            self._process = forked.start(self._command, environ=self._environ, stderr=log)

    async def ready(self, timeout_s: float = READY_S) -> None:
        """Wait until it says that it may get work. Raises AssertionError with the reason and the end of its log."""
        deadline = time.monotonic() + timeout_s
        reason = "it has not answered"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while time.monotonic() < deadline and self.runs:
                try:
                    async with session.get(f"http://{self.health}/readyz") as answer:
                        if answer.status == 200:
                            return
                        reason = await answer.text()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    reason = type(error).__name__
                await asyncio.sleep(_POLL_S)
        raise AssertionError(f"{self.name} is not ready: {reason}\n{self.log_tail()}")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal. One that has just ended does not notice."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def ended(self, timeout_s: float = END_S) -> int:
        """Wait for the end of the process; its exit code."""
        assert self._process is not None
        code = await asyncio.to_thread(self._process.wait, timeout_s)
        self._close_pipe()
        return code

    def freeze(self) -> None:
        """SIGSTOP: the process stands still, its connections stay open."""
        self._guard = subprocess.Popen([sys.executable, "-S", "-c", _GUARD, str(self.pid)], stdin=subprocess.PIPE)
        self.kill(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on where it stood."""
        self.kill(signal.SIGCONT)
        self._dismiss_guard()

    async def stop(self) -> None:
        """End it in whatever state it is; a second call does nothing."""
        if self.runs:
            self.kill(signal.SIGCONT)
            self.kill(signal.SIGTERM)
            try:
                await self.ended(timeout_s=20)
            except subprocess.TimeoutExpired:
                self.kill()
                await self.ended()
        self._dismiss_guard()
        self._close_pipe()

    def log_lines(self) -> list[str]:
        """What it has logged in all its lives, one JSON object a line."""
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []

    def log_tail(self, lines: int = 40) -> str:
        """The end of its log."""
        return "\n".join(self.log_lines()[-lines:])

    def _dismiss_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.wait()
            assert guard.stdin is not None
            guard.stdin.close()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
