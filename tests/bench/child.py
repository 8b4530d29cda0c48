"""Children of the benchmark: started in groups of their own, ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from services.embedded.identity import OURSELVES

_STOP_S = 30.0
_POLL_S = 0.02


class NotReady(Exception):
    """Something did not come up; the text says what, and how its log ends."""


@asynccontextmanager
async def running(
    command: Sequence[str], *, environ: Mapping[str, str], log: Path, cwd: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child with its output in `log`, stopped afterwards: SIGTERM, then SIGKILL for its whole group.

    It holds a pipe to us as its stdin, and gets SIGTERM when we die.
    """
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=OURSELVES.preexec(signal.SIGTERM),
        )
    try:
        yield process
    finally:
        await stop(process)


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ends a child that `running` started, if it has not ended."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        await kill(process)


async def kill(process: asyncio.subprocess.Process) -> None:
    """SIGKILL for the child and its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def until(
    holds: Callable[[], Awaitable[bool]], *, within_s: float, what: str, every_s: float | Callable[[], float] = _POLL_S
) -> None:
    """Returns when `holds` says so. It is asked every so many seconds. Raises NotReady naming `what`."""
    try:
        async with asyncio.timeout(within_s):
            while not await holds():
                await asyncio.sleep(every_s() if callable(every_s) else every_s)
    except TimeoutError:
        raise NotReady(f"{what}: not so within {within_s:g} s") from None


async def listens(process: asyncio.subprocess.Process, port: int, log: Path, *, within_s: float = 60.0) -> None:
    """Returns when the child accepts connections. Raises NotReady with the end of its log."""

    async def accepts() -> bool:
        if process.returncode is not None:
            raise NotReady(f"it ended with {process.returncode}: {tail(log)}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    await until(accepts, within_s=within_s, what=f"port {port}: {tail(log)}")


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
