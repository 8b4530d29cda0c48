"""What the two embedded servers share: start as a child that dies with us, wait until it answers, stop, force."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from services.embedded.identity import Identity

log = logging.getLogger(__name__)

_LOG_LIMIT = 16 << 20
_TAIL_LINES = 15
_KILLED_S = 5.0


class ServerFailed(Exception):
    """The server did not start; the text has the end of its log."""


class ServerProcess:
    """One child process with its log file. Stops by `polite`, then after `patience_s` by `firm`, then by SIGKILL."""

    def __init__(
        self,
        name: str,
        *,
        folder: Path,
        identity: Identity,
        polite: signal.Signals,
        firm: signal.Signals,
        patience_s: float,
    ) -> None:
        self.name = name
        self._folder = folder
        self._identity = identity
        self._polite = polite
        self._firm = firm
        self._patience_s = patience_s
        self._log_path = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running server."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def spawn(self, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]) -> None:
        """Starts the program in `cwd`, which also marks it as ours (see `processes_in`)."""
        with self._open_log() as output:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A terminal's Ctrl-C must reach us only: services drain before their database goes.
                start_new_session=True,
                preexec_fn=self._identity.preexec(self._polite),
            )

    def _open_log(self) -> BinaryIO:
        if self._log_path.exists() and self._log_path.stat().st_size > _LOG_LIMIT:
            self._log_path.replace(self._log_path.with_suffix(".log.old"))
        return self._log_path.open("ab")

    async def wait(self) -> int:
        """The exit code, when the server ends."""
        assert self._process is not None
        return await self._process.wait()

    def check_alive(self) -> None:
        """Raises ServerFailed when the server has ended."""
        if self._process is None or self._process.returncode is not None:
            code = self._process.returncode if self._process else None
            raise ServerFailed(f"{self.name} ended with code {code}; its log ends with:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of the server's log."""
        try:
            lines = self._log_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-_TAIL_LINES:])

    async def stop(self) -> None:
        """Stops the server; a second call does nothing."""
        process = self._process
        if process is None:
            return
        for number, patience in ((self._polite, self._patience_s), (self._firm, _KILLED_S), (signal.SIGKILL, None)):
            if process.returncode is not None:
                break
            process.send_signal(number)
            try:
                async with asyncio.timeout(patience):
                    await process.wait()
            except TimeoutError:
                log.warning("server ignores a signal", extra={"server": self.name, "signal": number.name})
        self._process = None

    def kill(self) -> None:
        """SIGKILL, as an accident would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


async def clear_orphans(folder: Path, polite: signal.Signals) -> None:
    """Ends servers of a former keeper that died hard: they are still on their way out, or stuck."""
    for number, patience in ((polite, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        for pid in processes_in(folder):
            log.warning("stopping a leftover server", extra={"pid": pid, "signal": number.name})
            _signal(pid, number)
        deadline = asyncio.get_running_loop().time() + patience
        while any(processes_in(folder)):
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.02)
        else:
            return


def processes_in(folder: Path) -> Iterator[int]:
    """The processes that work in `folder`: servers are started there. Empty where there is no /proc."""
    if sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                where = (entry / "cwd").readlink()
            except OSError:
                continue
            if where == folder:
                yield int(entry.name)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
