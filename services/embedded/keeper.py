"""The process that holds the embedded servers: `python -m services.embedded.keeper`.

Its stdin is a pipe whose other end only the owner has. When the owner dies, however hard, the pipe closes and the
keeper shuts the servers down properly; when the keeper itself is killed, the kernel signals them (`identity.preexec`).
A server that dies alone is started again on the same port.

One JSON line each way. In, first: `{"home", "owner", "servers": ["postgres", "nats"]}`; then `{"do": "stop" | "start" |
"kill", "server"}`. Out: `{"state": "ready", "urls": {server: url}, "pids": {server: pid}}`, or `{"state": "failed",
"message"}`; after a command `{"state": "done", "pids"}` or `failed`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.core.runtime.logs import configure_logs
from services.core.runtime.settings import LogSettings
from services.embedded.binaries import BinariesMissing, find_nats, find_postgres
from services.embedded.home import Home, HomeInUse
from services.embedded.identity import Unreachable
from services.embedded.nats import NatsServer
from services.embedded.postgres import PostgresServer
from services.embedded.server import ServerFailed

log = logging.getLogger(__name__)

Server = PostgresServer | NatsServer

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 5.0
_STARTUP_FAULTS = (BinariesMissing, HomeInUse, Unreachable, ServerFailed, OSError)


class Keeper:
    """The servers of one home and the watch over each."""

    def __init__(self, home: Home, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ
        self._servers: dict[str, Server] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}

    async def open(self, wanted: list[str], owner: int) -> None:
        """Takes the home and starts the servers. Raises one of the start-up faults."""
        self._home.create()
        self._home.lock(owner)
        # Before ports are looked at: a server of a killed keeper may still be on its way out and hold one.
        await PostgresServer.clear_leftovers(self._home.path / "postgres")
        await NatsServer.clear_leftovers(self._home.path / "nats")
        for name in wanted:
            self._servers[name] = self._make(name)
        await asyncio.gather(*(self.start(name) for name in wanted))

    def _make(self, name: str) -> Server:
        home = self._home
        if name == "postgres":
            binaries = find_postgres(self._environ)
            return PostgresServer(binaries, home.path / name, port=home.port(name), password=home.secret(name))
        return NatsServer(find_nats(self._environ), home.path / name, port=home.port(name), password=home.secret(name))

    async def start(self, name: str) -> None:
        """Starts one server and watches it."""
        await self._servers[name].start()
        self._watches[name] = asyncio.create_task(self._watch(self._servers[name]), name=f"watch-{name}")

    async def stop(self, name: str) -> None:
        """Stops one server; it stays down until `start`."""
        watch = self._watches.pop(name, None)
        if watch is not None:
            watch.cancel()
            await asyncio.wait({watch})
        await self._servers[name].stop()

    def kill(self, name: str) -> None:
        """SIGKILL for one server, as an accident would; the watch brings it back."""
        self._servers[name].process.kill()

    async def close(self) -> None:
        """Stops all servers at once."""
        results = await asyncio.gather(*(self.stop(name) for name in self._servers), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                log.error("stop failed", exc_info=result)
        self._home.unlock()

    def urls(self) -> dict[str, str]:
        """Server → URL with password."""
        return {name: server.url for name, server in self._servers.items()}

    def pids(self) -> dict[str, int | None]:
        """Server → pid, None when it is down."""
        return {name: server.process.pid for name, server in self._servers.items()}

    async def _watch(self, server: Server) -> None:
        backoff = _FIRST_BACKOFF_S
        while True:
            code = await server.process.wait()
            log.warning("server died, starting it again", extra={"server": server.name, "code": code})
            while True:
                await asyncio.sleep(backoff)
                try:
                    await server.start()
                except (ServerFailed, OSError) as error:
                    backoff = min(backoff * 2, _LONGEST_BACKOFF_S)
                    log.error("server does not start", extra={"server": server.name, "reason": str(error)})
                else:
                    backoff = _FIRST_BACKOFF_S
                    break


def _say(message: Mapping[str, Any]) -> None:
    try:
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        log.debug("the owner is gone")


async def _obey(keeper: Keeper, lines: asyncio.StreamReader) -> None:
    while line := await lines.readline():
        command = json.loads(line)
        try:
            if command["do"] == "stop":
                await keeper.stop(command["server"])
            elif command["do"] == "start":
                await keeper.start(command["server"])
            else:
                keeper.kill(command["server"])
        except _STARTUP_FAULTS as error:
            _say({"state": "failed", "message": str(error)})
        else:
            _say({"state": "done", "pids": keeper.pids()})


async def _main() -> int:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    order = json.loads(await lines.readline() or b"null")
    if order is None:
        return 1
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    keeper = Keeper(Home(Path(order["home"])), os.environ)

    async def live() -> None:
        await keeper.open(order["servers"], order["owner"])
        _say({"state": "ready", "urls": keeper.urls(), "pids": keeper.pids()})
        await _obey(keeper, lines)

    living = asyncio.create_task(live(), name="live")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, pending = await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait({living, stopping})
    code = 0
    if living in done and (error := living.exception()) is not None:
        code = 1
        _say({"state": "failed", "message": str(error)})
        if not isinstance(error, _STARTUP_FAULTS):
            log.error("keeper failed", exc_info=error)
    await keeper.close()
    return code


if __name__ == "__main__":
    configure_logs("keeper", LogSettings())
    raise SystemExit(asyncio.run(_main()))
