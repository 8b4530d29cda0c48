"""`runr dev`: the whole engine on one machine, in one command, leaving nothing behind.

This process holds everything: the keeper of the embedded servers and the four services are its children and go with it.
Ports, passwords and data are in the home (`.runr`, or RUNR_HOME) and are found again by the next start.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from services.cli.children import ChildRefused, Children, ChildSpec
from services.cli.dev_checks import check_given, check_home
from services.cli.failure import Failure
from services.cli.forked import Forked
from services.cli.function import check_function_url, follow_function
from services.cli.stalled import tell_stalled
from services.core.runtime.config import ConfigError, load
from services.core.runtime.logs import configure_logs
from services.core.runtime.parent import on_parent_death
from services.core.runtime.python_child import python_command, python_environ
from services.core.runtime.service import EXIT_OK, EXIT_USAGE
from services.core.runtime.settings import LogSettings, ProcessSettings
from services.core.store.connect_fault import CONNECT_FAULTS, connect_fault
from services.core.store.migrate import MigrationMismatch, migrate
from services.embedded.home import Home, is_free
from services.embedded.stack import EmbeddedStack, StackFailed

log = logging.getLogger(__name__)

_DEV_GRACE = "10s"
_READY_S = 60.0
_API_PORT = 8080
_KEEPER_POLL_S = 0.25
_SERVICES = ("gateway", "ingest", "executor", "scheduler")


class Dev:
    """One running stack."""

    def __init__(self, environ: Mapping[str, str], home: Home, port: int | None) -> None:
        self._given = environ
        self._home = home
        self._port = port
        self._stop = asyncio.Event()
        self._stack: EmbeddedStack | None = None
        self._children: Children | None = None
        self._forked = Forked(environ)
        self._told: dict[str, Any] = {}
        self.environ: dict[str, str] = {}

    def request_stop(self) -> None:
        """Begins the orderly stop; a second request kills what is left."""
        if self._stop.is_set() and self._children is not None:
            self._children.kill()
        self._stop.set()

    async def run(self, function: str | None) -> int:
        """Starts, prints where to look, waits for the stop."""
        self._check_port()
        check_home(self._home)
        self._forked.open()  # it imports while the servers start
        # Before the inner try: a start that is refused must leave alone what the running stack has written.
        try:
            await self._open_servers()
            try:
                await self._settle()
                await check_given(self._given, self.environ)
                await self._migrate()
                await self._serve(function)
            finally:
                # While the home is still locked: the next stack writes its own.
                self._home.forget("stack.json")
                if self._stack is not None:
                    await asyncio.to_thread(self._stack.close)
        finally:
            self._forked.close()
        return EXIT_OK

    async def _migrate(self) -> None:
        try:
            await migrate(self.environ["DATABASE_URL"])
        except CONNECT_FAULTS as error:
            raise Failure(connect_fault(error, self.environ["DATABASE_URL"])) from None
        except MigrationMismatch as error:
            if self._given.get("DATABASE_URL"):
                raise Failure(
                    f"{error}: the database that DATABASE_URL names belongs to another version of RunR; name another"
                ) from error
            raise Failure(
                f"{error}: the database of {self._home.path} belongs to another version of RunR;"
                " RUNR_HOME may name another folder, or delete this one if nothing in it is needed any more"
            ) from error

    async def _open_servers(self) -> None:
        given = {"postgres": "DATABASE_URL", "nats": "NATS_URL"}
        needed = [server for server, variable in given.items() if not self._given.get(variable)]
        try:
            # Also with nothing to start: the keeper holds the lock of the home.
            self._stack = await asyncio.to_thread(EmbeddedStack, self._home, self._given, needed)
        except StackFailed as error:
            raise Failure(str(error)) from None

    def _check_port(self) -> None:
        """Before a server is started for nothing. Raises Failure."""
        if self._port is None:
            return
        if not 0 < self._port < 65_536:
            raise Failure(f"--port {self._port}: a port is a number from 1 to 65535", EXIT_USAGE)
        # A stack of this home may be what has it: then it is better told that one runs.
        running = self._home.recall("stack.json").get("api_url", "")
        if not running.endswith(f":{self._port}") and not is_free(self._port):
            raise Failure(_taken(self._port))

    async def _settle(self) -> None:
        """Decides every setting of the services; what the caller has set stays."""
        assert self._stack is not None
        home = self._home
        chosen = {
            "RUNR_ENCRYPTION_KEY": home.key("encryption"),
            "RUNR_BOOTSTRAP_TOKEN": f"runr_dev_{home.secret('token')}",
            "RUNR_HTTP_ADDR": f"127.0.0.1:{self._api_port()}",
            "RUNR_GRACE": _DEV_GRACE,
            "RUNR_LOG_LEVEL": "warning",
            "RUNR_COOKIE_SECURE": "false",
            "WORKFLOWS_ALLOW_PRIVATE_ENDPOINTS": "true",
        }
        for service in ("ingest", "scheduler", "executor"):
            chosen[f"RUNR_{service.upper()}_ADDR"] = f"127.0.0.1:{home.port(service)}"
        for server, variable in (("postgres", "DATABASE_URL"), ("nats", "NATS_URL")):
            if server in self._stack.urls:
                chosen[variable] = self._stack.urls[server]
        set_by_caller = {name: value for name, value in self._given.items() if value}
        self.environ = {**chosen, **set_by_caller}
        if self._port is not None:
            self.environ["RUNR_HTTP_ADDR"] = f"127.0.0.1:{self._port}"
        self.environ.setdefault("WORKFLOWS_PUBLIC_API_URL", self.api_url)

    def _api_port(self) -> int:
        if self._port is None:
            return self._home.port("api", preferred=_API_PORT)
        if not is_free(self._port):
            raise Failure(_taken(self._port))
        return self._port

    async def _serve(self, function: str | None) -> None:
        specs = [self._spec(service) for service in _SERVICES]
        grace_s = load(ProcessSettings, self.environ).grace_s
        children = self._children = Children(specs, grace_s=grace_s, spawn=self._forked.spawn, changed=self._tell_pids)
        keeping = asyncio.create_task(children.keep(), name="services")
        watching = asyncio.create_task(self._watch_keeper(), name="keeper")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        telling: list[asyncio.Task[None]] = []
        try:
            if await self._became_ready(children, keeping, stopping):
                self._announce(specs)
                telling.append(asyncio.create_task(tell_stalled(self.environ["DATABASE_URL"]), name="stalled"))
                if function is not None:
                    following = follow_function(self.api_url, self.environ["RUNR_BOOTSTRAP_TOKEN"], function)
                    telling.append(asyncio.create_task(following, name="function"))
                await asyncio.wait({keeping, watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (watching, stopping, *telling):
                task.cancel()
            # Callers are refused while everything behind the gateway still works.
            await children.stop(first="gateway")
            with suppress(asyncio.CancelledError):
                await _outcome(keeping)

    async def _became_ready(
        self, children: Children, keeping: asyncio.Task[None], stopping: asyncio.Task[bool]
    ) -> bool:
        ready = asyncio.create_task(children.wait_ready(_READY_S), name="ready")
        done, _ = await asyncio.wait({ready, keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if ready not in done:
            ready.cancel()
            return False
        try:
            await ready
        except TimeoutError as error:
            raise Failure(str(error)) from None
        return True

    def _spec(self, service: str) -> ChildSpec:
        health = f"127.0.0.1:{self._home.port(f'{service}-health')}"
        return ChildSpec(
            name=service,
            command=python_command("services.cli.main", "serve", service),
            environ={**python_environ(self.environ), "RUNR_HEALTH_ADDR": health},
            ready_url=f"http://{health}/readyz",
        )

    async def _watch_keeper(self) -> None:
        """Brings the embedded servers back when their keeper is killed: same ports, same data."""
        while True:
            await asyncio.sleep(_KEEPER_POLL_S)
            if self._stack is None or self._stack.is_alive:
                continue
            log.warning("the keeper of Postgres and NATS died, starting them again")
            servers = list(self._stack.urls)
            self._stack.close()
            try:
                self._stack = await asyncio.to_thread(EmbeddedStack, self._home, self._given, servers)
            except StackFailed as error:
                log.error("the embedded servers do not start", extra={"reason": str(error)})

    @property
    def api_url(self) -> str:
        """Where the gateway listens."""
        return f"http://{self.environ['RUNR_HTTP_ADDR']}"

    def _announce(self, specs: list[ChildSpec]) -> None:
        token = self.environ["RUNR_BOOTSTRAP_TOKEN"]
        self._told = {
            "api_url": self.api_url,
            "worker_url": self.environ["RUNR_EXECUTOR_ADDR"],
            "token": token,
            "database_url": self.environ["DATABASE_URL"],
            "nats_url": self.environ["NATS_URL"],
            "health": {spec.name: spec.ready_url for spec in specs},
        }
        self._tell_pids()
        sys.stdout.write(
            f"RunR is up.\n\n"
            f"  API        {self.api_url}/api\n"
            f"  Workers    {self.environ['RUNR_EXECUTOR_ADDR']}\n"
            f"  Token      {token}\n"
            f"  Data       {self._home.path}\n\n"
            f"  curl -H 'Authorization: Bearer {token}' \\\n"
            f'       -d \'{{"name": "order.created", "data": {{"order_id": "o-1"}}}}\' {self.api_url}/api/events\n\n'
            f"Ctrl-C stops everything; the data stays.\n"
        )
        sys.stdout.flush()

    def _tell_pids(self) -> None:
        """Writes what others find this stack by, once it is up: with the services that run now."""
        if not self._told or self._stop.is_set() or self._children is None:
            return
        try:
            self._home.remember("stack.json", {**self._told, "pids": self._children.pids()})
        except OSError as error:
            log.warning("stack.json is not written: %s", error)


def _taken(port: int) -> str:
    return f"port {port} is taken; choose another with --port"


async def _outcome(keeping: asyncio.Task[None]) -> None:
    try:
        await keeping
    except* ChildRefused as group:
        raise Failure(str(group.exceptions[0]), EXIT_USAGE) from None


async def run(environ: Mapping[str, str], *, port: int | None, function: str | None) -> int:
    """Runs the stack until SIGINT, SIGTERM or SIGHUP, or until the parent that holds our stdin is gone."""
    if function is not None:
        check_function_url(function)
    try:
        configure_logs("dev", load(LogSettings, environ))
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    dev = Dev(environ, Home.of(environ), port)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, dev.request_stop)
    on_parent_death(environ, lambda: loop.call_soon_threadsafe(dev.request_stop))
    return await dev.run(function)
