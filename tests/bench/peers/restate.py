"""Restate: a server and one worker process, measured through the HTTP ingress."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from services.embedded.home import temporary_folder
from tests.bench.child import free_port, kill, listens, running, until
from tests.bench.figures import Figure
from tests.bench.lean_client import CallFailed, LeanClient
from tests.bench.peers.install import PeerMissing
from tests.bench.peers.restate_workloads import WORKLOADS, Ingress
from tests.bench.processes import Pids, descendants

_PROGRAMS = Path(__file__).parent / "programs"
_SERVER = Path("node_modules/@restatedev/restate-server-linux-x64/bin/restate-server")
_UP_S = 60.0
_LEADERS_S = 2.0


@dataclass(frozen=True, slots=True)
class Restate:
    """Restate with one of its SDKs. `worker` is the beginning of the worker's command, `modules` the folder of npm."""

    engine: str
    worker: Sequence[str]
    modules: Path
    asleep: int
    transport: str = ""

    def workloads(self) -> set[str]:
        """See `Contender.workloads`."""
        return set(WORKLOADS)

    async def measure(self, workload: str) -> list[Figure]:
        """See `Contender.measure`."""
        server = self.modules / _SERVER
        if not server.exists():
            raise PeerMissing(f"{server} is missing")
        with temporary_folder("bench-restate") as folder:
            running_peer = RunningRestate(self, server, folder)
            async with running_peer.serving():
                return await WORKLOADS[workload](running_peer, self.asleep)


class RunningRestate:
    """A server with its worker, both of which can be killed and started again."""

    def __init__(self, restate: Restate, server: Path, folder: Path) -> None:
        self.folder = folder
        self.step_log, self.key_log = folder / "steps.log", folder / "keys.log"
        self._restate = restate
        self._server_program = server
        self._ports = {name: free_port() for name in ("ingress", "admin", "node", "worker")}
        self._server: asyncio.subprocess.Process | None = None
        self._worker: asyncio.subprocess.Process | None = None
        self._opened = AsyncExitStack()
        self.ingress: Ingress
        self.admin: LeanClient

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Both run, and know each other, during the block."""
        async with self._opened:
            self.ingress = await self._opened.enter_async_context(LeanClient(self._url("ingress")))
            headers = {"Accept": "application/json"}
            self.admin = await self._opened.enter_async_context(LeanClient(self._url("admin"), headers))
            await self.start()
            await until(self._is_up, within_s=_UP_S, what="restate-server is up", every_s=0.1)
            # Until its partitions have leaders.
            await asyncio.sleep(_LEADERS_S)
            await listens(self._running_worker, self._ports["worker"], self.folder / "worker.log")
            await self.admin.call("POST", "/deployments", {"uri": self._url("worker")})
            yield

    async def start(self) -> None:
        """Starts server and worker."""
        base = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        server = {
            **base,
            "RESTATE_BASE_DIR": str(self.folder / "data"),
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_NODE_NAME": "n1",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{self._ports['node']}",
            "RESTATE_ADVERTISED_ADDRESS": self._url("node"),
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self._ports['ingress']}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self._ports['admin']}",
        }
        self._server = await self._child([str(self._server_program), "--no-logo"], server, "server")
        worker = {
            **base,
            "RESTATE_LOGGING": "ERROR",
            "PORT": str(self._ports["worker"]),
            "STEP_LOG": str(self.step_log),
            "KEY_LOG": str(self.key_log),
        }
        self._worker = await self._child(self._worker_command(), worker, "worker")

    async def kill(self) -> None:
        """SIGKILL for both."""
        assert self._server is not None
        await asyncio.gather(kill(self._server), kill(self._running_worker))

    def pids(self) -> Pids:
        """The processes by duty."""
        assert self._server is not None
        return {
            "server": descendants(self._server.pid),
            "worker": descendants(self._running_worker.pid),
            "driver": [os.getpid()],
        }

    @property
    def _running_worker(self) -> asyncio.subprocess.Process:
        assert self._worker is not None
        return self._worker

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def _worker_command(self) -> list[str]:
        command = list(self._restate.worker)
        if command[-1] == "hypercorn":
            return [*command, "-b", f"127.0.0.1:{self._ports['worker']}", "-w", "1", "restate_worker:app"]
        # Modules are looked for beside the program.
        shutil.copy(_PROGRAMS / command[-1], self._restate.modules / command[-1])
        return [command[0], str(self._restate.modules / command[-1])]

    async def _child(self, command: list[str], environ: Mapping[str, str], name: str) -> asyncio.subprocess.Process:
        log = self.folder / f"{name}.log"
        child = running(command, environ=environ, log=log, cwd=_PROGRAMS)
        return await self._opened.enter_async_context(child)

    async def _is_up(self) -> bool:
        assert self._server is not None
        if self._server.returncode is not None:
            raise PeerMissing(f"restate-server ended: {(self.folder / 'server.log').read_text()[-500:]}")
        try:
            await self.admin.call("GET", "/health")
            await self.ingress.call("GET", "/restate/health")
        except CallFailed:
            return False
        return True
