"""The services as child processes of one supervisor: started, watched, started again, stopped together.

A child holds the read end of a pipe as its stdin and drains when we are gone, however that happened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import aiohttp

from services.cli.child_process import ChildProcess, Spawn, exec_child
from services.core.runtime.service import EXIT_USAGE
from services.core.runtime.supervised import supervised_environ

log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 5.0
# A child that lived this long has not died of its start: it is started again at once.
_HEALTHY_S = 10.0
_POLL_S = 0.05
_KILL_MARGIN_S = 5.0
_ASK_S = 1.0
# A child tells it to the database early in its start: so many starts may fail before that.
_REMEMBERED = 100


class ChildRefused(Exception):
    """A child ended because its settings are wrong: starting it again would not help."""


@dataclass(frozen=True)
class ChildSpec:
    """One service: what to run and where it says that it is ready. `pass_fds` are inherited, at every start."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)
    ready_url: str
    pass_fds: tuple[int, ...] = ()


class Children:
    """Runs children until `stop`."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        grace_s: float,
        spawn: Spawn = exec_child,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when a child was started or has ended: `pids` is another then."""
        self._specs = {spec.name: spec for spec in specs}
        self._grace_s = grace_s
        self._spawn_child = spawn
        self._changed = changed
        self._processes: dict[str, ChildProcess] = {}
        self._names: dict[str, UUID] = {}
        self._ended: dict[str, list[UUID]] = {name: [] for name in self._specs}
        self._stopping = asyncio.Event()

    def pids(self) -> dict[str, int]:
        """Name → pid of the children that run now."""
        return {name: process.pid for name, process in self._processes.items() if process.returncode is None}

    async def keep(self) -> None:
        """Keeps every child running; returns after `stop`. Raises ChildRefused (in a group) when one cannot start."""
        async with asyncio.TaskGroup() as group:
            for spec in self._specs.values():
                group.create_task(self._keep(spec), name=f"keep-{spec.name}")

    async def wait_ready(self, timeout_s: float) -> None:
        """Returns when every child says that it is ready. Raises TimeoutError naming those that are not, and why."""
        waiting = {name: "it has not answered" for name in self._specs}
        deadline = time.monotonic() + timeout_s
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while waiting:
                for name in list(waiting):
                    reason = await _ask(session, self._specs[name].ready_url)
                    if reason is None:
                        del waiting[name]
                    else:
                        waiting[name] = reason
                if waiting and time.monotonic() > deadline:
                    raise TimeoutError("; ".join(f"{name} is not ready: {reason}" for name, reason in waiting.items()))
                if waiting:
                    await asyncio.sleep(_POLL_S)

    async def unready(self, name: str) -> str | None:
        """Why a child may not get work; None if it may."""
        if name not in self.pids():
            return "it does not run"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_S)) as session:
            return await _ask(session, self._specs[name].ready_url)

    async def stop(self, *, first: str | None = None) -> dict[str, int]:
        """Drains the child `first`, then all others together; kills those that outlive the grace period.

        The exit codes, of those that ran; a second call waits for the same end.
        """
        self._stopping.set()
        if first is not None:
            await self._stop(first)
        await asyncio.gather(*(self._stop(name) for name in self._specs))
        return {name: code for name, process in self._processes.items() if (code := process.returncode) is not None}

    def terminate(self) -> None:
        """SIGTERM for all that run: one that drains already stops at once."""
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()

    async def _stop(self, name: str) -> None:
        process = self._processes.get(name)
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(self._grace_s + _KILL_MARGIN_S):
                await process.wait()
        except TimeoutError:
            log.error("service did not stop in time", extra={"child": name})
            process.kill()
            await process.wait()

    def kill(self) -> None:
        """SIGKILL for all."""
        self._stopping.set()
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()

    async def _keep(self, spec: ChildSpec) -> None:
        backoff = _FIRST_BACKOFF_S
        while not self._stopping.is_set():
            born = time.monotonic()
            process = await self._spawn(spec)
            code = await process.wait()
            self._changed()
            self._ended[spec.name] = [*self._ended[spec.name], self._names[spec.name]][-_REMEMBERED:]
            if self._stopping.is_set():
                return
            if code == EXIT_USAGE:
                raise ChildRefused(f"{spec.name} does not start with these settings")
            if time.monotonic() - born > _HEALTHY_S:
                backoff = 0.0
            log.warning("service died, starting it again", extra={"child": spec.name, "code": code, "in_s": backoff})
            if backoff > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(backoff):
                        await self._stopping.wait()
            backoff = min(max(backoff * 2, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S)

    async def _spawn(self, spec: ChildSpec) -> ChildProcess:
        name = self._names[spec.name] = uuid4()
        environ = {**spec.environ, **supervised_environ(name, self._ended[spec.name])}
        process = await self._spawn_child(spec.command, environ, spec.pass_fds)
        self._processes[spec.name] = process
        self._changed()
        if self._stopping.is_set():
            process.terminate()
        return process


async def _ask(session: aiohttp.ClientSession, url: str) -> str | None:
    """None when ready, else the reason."""
    try:
        async with session.get(url) as answer:
            if answer.status == 200:
                return None
            checks = (await answer.json())["checks"]
            return ", ".join(f"{name}: {state}" for name, state in checks.items() if state != "ok")
    except (aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError) as error:
        return type(error).__name__
