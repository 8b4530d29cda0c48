"""`runr serve executor --processes N`: one parent, N processes of the service that share its gRPC address.

Each child is an executor of its own: its own owner, its own leases, its own drain. The parent starts them, starts those
again that die, passes signals on, is ready when all of them are, and tells their metrics as one.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import aiohttp

from services.cli.addresses import bound, free_address
from services.cli.children import ChildRefused, Children, ChildSpec
from services.cli.serve import MANIFOLD as SERVICE
from services.core.runtime.config import ConfigError, load
from services.core.runtime.exposition import Exposition
from services.core.runtime.health import Check, Health, NotReady
from services.core.runtime.health_server import HealthServer
from services.core.runtime.logs import configure_logs
from services.core.runtime.merged_metrics import merged
from services.core.runtime.metric_table import PROCESSES
from services.core.runtime.metrics import Metrics
from services.core.runtime.parent import on_parent_death
from services.core.runtime.parse import Address
from services.core.runtime.process_slot import HEALTH_SOCKET, PROCESS_SLOT
from services.core.runtime.python_child import python_command, python_environ
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE, loop_factory
from services.core.runtime.settings import HEALTH_PORTS, ListenSettings, LogSettings, PeerSettings, ProcessSettings

log = logging.getLogger(__name__)


# The children of a killed parent hold the address until they have drained; a stranger would share it in silence.
_ADDRESS_S = 15.0
_METRICS_S = 2.0


@dataclass(frozen=True)
class _Settings:
    process: ProcessSettings
    logs: LogSettings
    listen: ListenSettings
    peers: PeerSettings


def serve_processes(count: int, environ: Mapping[str, str]) -> int:
    """Runs `count` executors until a signal. The exit code: 0, 1 one failed, 2 bad settings."""
    try:
        settings = load(_Settings, environ)
    except ConfigError as error:
        for fault in error.faults:
            sys.stderr.write(f"runr {SERVICE}: {fault}\n")
        return EXIT_USAGE
    configure_logs(SERVICE, settings.logs)
    with asyncio.Runner(loop_factory=loop_factory()) as runner, ExitStack() as sockets:
        try:
            address = runner.run(
                free_address(settings.listen.grpc or settings.peers.executor, "RUNR_GRPC_ADDR", within_s=_ADDRESS_S)
            )
            held = sockets.enter_context(shared_socket(address))
            listeners = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        except OSError as error:
            log.error("start failed: %s", error)
            return EXIT_FAILED
        address = Address(address.host, held.getsockname()[1])
        specs = [_spec(slot, listener, address, environ) for slot, listener in enumerate(listeners)]
        return runner.run(Processes(specs, settings.process).run(environ))


class Processes:
    """The children while they are wanted."""

    def __init__(self, specs: list[ChildSpec], settings: ProcessSettings) -> None:
        self._children = Children(specs, grace_s=settings.grace_s)
        self._health = Health()
        self._address = settings.health or Address("127.0.0.1", HEALTH_PORTS[SERVICE])
        self._stop = asyncio.Event()
        self._own = Metrics(SERVICE)
        self._own.watch(PROCESSES, lambda: len(self._children.pids()))
        self._exposition = Exposition([self._own])
        self._places = [spec.ready_url.replace("/readyz", "/metrics") for spec in specs]
        for spec in specs:
            self._health.register(spec.name, self._check(spec.name))

    async def run(self, environ: Mapping[str, str]) -> int:
        """Until a signal, or until the parent that holds our stdin is gone."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop, number.name)
        on_parent_death(environ, lambda: _call_in(loop, self._request_stop, "the parent is gone"))
        server = HealthServer(self._health, self._address, SERVICE, metrics=self._metrics)
        try:
            await server.start()
        except OSError as error:
            log.error("start failed: %s", error)
            return EXIT_FAILED
        try:
            return await self._keep()
        finally:
            await server.stop()

    async def _metrics(self) -> bytes:
        """Those of all that answer in time, each with its number, and the parent's."""
        timeout = aiohttp.ClientTimeout(total=_METRICS_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            told = await asyncio.gather(*(_text(session, place) for place in self._places))
        texts = {str(slot): text for slot, text in enumerate(told) if text is not None}
        return merged({**texts, "parent": (await self._exposition.text()).decode()}).encode()

    async def _keep(self) -> int:
        keeping = asyncio.create_task(self._children.keep(), name="children")
        stopping = asyncio.create_task(self._stop.wait(), name="stop-requested")
        self._health.set_started()
        try:
            await asyncio.wait({keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            self._health.set_draining()
            codes = set((await self._children.stop()).values())
        try:
            await keeping
        except* ChildRefused as refused:
            log.error("start failed: %s", refused.exceptions[0])
            codes = {EXIT_USAGE}
        if EXIT_USAGE in codes:
            return EXIT_USAGE
        return EXIT_OK if codes <= {EXIT_OK} else EXIT_FAILED

    def _request_stop(self, reason: str) -> None:
        """Drains all children at once; a second request is passed on, and they stop without a drain."""
        if self._stop.is_set():
            self._children.terminate()
            return
        log.info("draining", extra={"reason": reason})
        self._stop.set()

    def _check(self, name: str) -> Check:
        async def check() -> None:
            reason = await self._children.unready(name)
            if reason is not None:
                raise NotReady(reason)

        return check


async def _text(session: aiohttp.ClientSession, place: str) -> str | None:
    """What a child tells there; None while it cannot."""
    try:
        async with session.get(place) as answer:
            return await answer.text() if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None


def _call_in(loop: asyncio.AbstractEventLoop, act: Callable[[str], None], reason: str) -> None:
    with suppress(RuntimeError):  # the loop has closed meanwhile
        loop.call_soon_threadsafe(act, reason)


def shared_socket(address: Address) -> socket.socket:
    """A socket that holds an address for processes that share it, and takes no connection itself. Raises OSError."""
    held = bound(address, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    log.debug("holding the address", extra={"address": str(address)})
    return held


def _spec(slot: int, listener: socket.socket, address: Address, environ: Mapping[str, str]) -> ChildSpec:
    return ChildSpec(
        name=f"{SERVICE}-{slot}",
        command=python_command("services.cli.main", "serve", SERVICE),
        environ={
            **python_environ(environ),
            PROCESS_SLOT: str(slot),
            HEALTH_SOCKET: str(listener.fileno()),
            "RUNR_GRPC_ADDR": str(address),
        },
        ready_url=f"http://127.0.0.1:{listener.getsockname()[1]}/readyz",
        pass_fds=(listener.fileno(),),
    )
