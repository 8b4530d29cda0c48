"""The whole engine for a test: the four services as real processes over a real Postgres and NATS.

The servers are given, so that tests may share them or stop them; the processes, the database and the ports are the
stack's own. Tests keep apart by tenants of their own.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import random
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import asyncpg

from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.tokens import ALL_ABILITIES, hash_token
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant, insert_token
from services.core.store.migrate import migrate
from services.embedded.stack import EmbeddedStack
from tests.support.child import Child
from tests.support.homes import temporary_home
from tests.support.postgres import KeptConnection, execute, with_database
from tests.support.rest import Rest
from tests.support.tenancy import BOOTSTRAP_TOKEN, ENCRYPTION_KEY
from tests.support.transports import Transport

SERVICES = ("scheduler", "executor", "ingest", "gateway")
LEASE_TTL_S = 6.0

_SETTINGS = {
    "RUNR_GRACE": "2s",
    "RUNR_LOG_LEVEL": "warning",
    "RUNR_LOG_FORMAT": "json",
    "WORKFLOWS_ALLOW_PRIVATE_ENDPOINTS": "true",
    "WORKFLOWS_QUEUE_ACK_WAIT": "2s",
    "WORKFLOWS_LEASE_TTL": f"{LEASE_TTL_S:g}s",
    "WORKFLOWS_HEARTBEAT": "500ms",
}
# A path of the API that each service answers.
_SERVED_BY = {"scheduler": "/projects", "executor": "/projects/default/workflows/app", "ingest": "/events"}
_NOT_INHERITED = ("RUNR_", "WORKFLOWS_", "OTEL_", "DATABASE_URL", "NATS_URL")
_SECRET = re.compile(r"\b(?:rt|rs|wfsk)_[A-Za-z0-9_-]{20}|(?i:bearer) [A-Za-z0-9_-]{8}|" + BOOTSTRAP_TOKEN)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Servers:
    """The embedded servers of a stack, and how a test takes them away."""

    postgres: EmbeddedStack
    nats: EmbeddedStack

    async def stop_nats(self) -> None:
        """NATS is gone until `start_nats`."""
        await asyncio.to_thread(self.nats.stop, "nats")

    async def start_nats(self) -> None:
        """NATS is back, with nothing in it: its streams are in memory."""
        await asyncio.to_thread(self.nats.start, "nats")

    async def stop_postgres(self) -> None:
        """Postgres goes by a fast shutdown, and is away until `start_postgres`."""
        await asyncio.to_thread(self.postgres.stop, "postgres")

    async def start_postgres(self) -> None:
        """Postgres is back."""
        await asyncio.to_thread(self.postgres.start, "postgres")

    async def crash_postgres(self) -> None:
        """SIGKILL for Postgres; its keeper starts it again, and it recovers from its log."""
        await asyncio.to_thread(self.postgres.kill, "postgres")


class Stack:
    """Four services, or more where `replicas` asks for it. An async context manager.

    `settings` are environment variables of all processes, `own` those of one, by its name; `commands` replace the way
    in which one is started.
    """

    def __init__(
        self,
        servers: Servers,
        *,
        settings: Mapping[str, str] | None = None,
        replicas: Mapping[str, int] | None = None,
        own: Mapping[str, Mapping[str, str]] | None = None,
        commands: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.servers = servers
        self.settings = settings or {}
        self.replicas = replicas or {}
        self.own = own or {}
        self.commands = commands or {}
        self.children: dict[str, Child] = {}
        self._ready: dict[str, int] = {}
        self._addresses: dict[str, str] = {}
        self._folder = ExitStack()
        self._database = f"stack_{next(_numbers)}"
        self.database_url = with_database(self._postgres_url, self._database)
        self._kept = KeptConnection(self.database_url)

    async def __aenter__(self) -> Self:
        self.home = self._folder.enter_context(temporary_home("stack"))
        try:
            await execute(self._postgres_url, f"create database {self._database}")
            await migrate(self.database_url)
            self.children = self._children()
            for child in self.children.values():
                child.start()
            await self.ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the services, drop the database."""
        await asyncio.gather(*(child.stop() for child in self.children.values()))
        await asyncio.to_thread(self._kept.close)
        await execute(self._postgres_url, f"drop database if exists {self._database} with (force)")
        self._folder.close()

    @property
    def _postgres_url(self) -> str:
        return self.servers.postgres.urls["postgres"]

    @property
    def api_url(self) -> str:
        """Where the first gateway listens."""
        return self.api_urls[0]

    @property
    def api_urls(self) -> list[str]:
        """Where the gateways listen."""
        return [f"http://{self._address(name)}" for name in self.names("gateway")]

    @property
    def executor_address(self) -> str:
        """Where the first executor takes workers: host and port."""
        return self._address("executor")

    @property
    def executor_addresses(self) -> list[str]:
        """Where the executors take workers."""
        return [self._address(name) for name in self.names("executor")]

    def address(self, name: str) -> str:
        """Where a service takes gRPC."""
        return self._address(name)

    def names(self, service: str) -> list[str]:
        """The processes of a service, by their names: from the second one on they have a number."""
        more = range(2, self.replicas.get(service, 1) + 1)
        return [service, *(f"{service}-{number}" for number in more)]

    def _children(self) -> dict[str, Child]:
        environ = self.environ
        children = {}
        for service in SERVICES:
            for place, name in enumerate(self.names(service)):
                children[name] = Child(
                    name,
                    service,
                    environ={**environ, **self._addresses_for(place), **self.own.get(name, {})},
                    health=self._address(f"{name}-health"),
                    log=self.home.path / f"{name}.log",
                    command=self.commands.get(name),
                )
        return children

    def _addresses_for(self, place: int) -> dict[str, str]:
        """Where the replicas at this place listen. A gateway calls those of its own place, or else the first ones."""
        names = {service: self.names(service) for service in SERVICES}
        at = {service: self._address(found[min(place, len(found) - 1)]) for service, found in names.items()}
        http = at.pop("gateway")
        return {"RUNR_HTTP_ADDR": http, **{f"RUNR_{service.upper()}_ADDR": address for service, address in at.items()}}

    def _address(self, name: str) -> str:
        if name not in self._addresses:
            self._addresses[name] = f"127.0.0.1:{self.home.port(name)}"
        return self._addresses[name]

    @property
    def environ(self) -> dict[str, str]:
        """What all processes are started with."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        return {
            **inherited,
            **_SETTINGS,
            "DATABASE_URL": self.database_url,
            "NATS_URL": self.servers.nats.urls["nats"],
            "RUNR_NATS_PREFIX": self.nats_prefix,
            "RUNR_ENCRYPTION_KEY": base64.b64encode(ENCRYPTION_KEY).decode(),
            "RUNR_BOOTSTRAP_TOKEN": BOOTSTRAP_TOKEN,
            "WORKFLOWS_PUBLIC_API_URL": self.api_url,
            **self.settings,
        }

    @property
    def nats_prefix(self) -> str:
        """What the stack's streams and subjects begin with."""
        return self._database.replace("_", "")

    async def ready(self, *names: str) -> None:
        """Wait until these services, or all, may get work, and the gateway has found them again."""
        wanted = names or tuple(self.children)
        await asyncio.gather(*(self.children[name].ready() for name in wanted))
        if self.children["gateway"].runs:
            async with self.client() as rest:
                for service, path in _SERVED_BY.items():
                    if self.children[service].runs and (service in wanted or "gateway" in wanted):
                        await rest.until(partial(rest.call, "GET", path), lambda reply: reply.status < 500)
        self._ready |= {name: self.children[name].pid for name in wanted}

    async def kill(self, name: str) -> None:
        """SIGKILL; returns when the process is gone."""
        self.children[name].kill()
        await self.children[name].ended()

    async def start(self, name: str) -> None:
        """Start a service that does not run; returns when it may get work."""
        self.children[name].start()
        await self.ready(name)

    @asynccontextmanager
    async def given(self, name: str, settings: Mapping[str, str]) -> AsyncIterator[None]:
        """Meanwhile this process has settings of its own: it is started anew with them, and without them in the end."""
        child = self.children[name]
        with child.environ(settings):
            await child.stop()
            await self.start(name)
            try:
                yield
            finally:
                await child.stop()
        await self.start(name)

    @property
    def stands(self) -> bool:
        """Whether the processes that have been waited for still run, all of them."""
        return all(child.runs and self._ready.get(name) == child.pid for name, child in self.children.items())

    async def revive(self) -> None:
        """Start what does not run, as a test that failed may have left it."""
        for child in self.children.values():
            if not child.runs:
                child.start()
        await self.ready()

    async def restart(self) -> None:
        """Stop everything in order, start everything again."""
        await asyncio.gather(*(child.stop() for child in self.children.values()))
        for child in self.children.values():
            child.start()
        await self.ready()

    @asynccontextmanager
    async def tenant(self, transport: Transport = "http") -> AsyncIterator[Rest]:
        """A client with all permissions in a new tenant, whose project `default` is served over this transport."""
        token = f"rt_{secrets.token_urlsafe(24)}"
        slug = f"tenant-{next(_numbers)}"
        await asyncio.to_thread(self._kept.run, lambda connection: _enter(connection, slug, token))
        async with Rest(
            self.api_url,
            token,
            tenant=slug,
            database_url=self.database_url,
            worker_urls=self.executor_addresses,
            transport=transport,
        ) as rest:
            yield rest

    async def value(self, query: str, *arguments: Any) -> Any:
        """One value from the database."""
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetchval(query, *arguments)
        finally:
            await connection.close()

    def client(self, token: str = BOOTSTRAP_TOKEN) -> Rest:
        """A client of the default tenant; an async context manager."""
        return Rest(self.api_url, token, database_url=self.database_url)

    def faults(self) -> list[dict[str, Any]]:
        """What services have logged as errors."""
        lines = [json.loads(line) for child in self.children.values() for line in child.log_lines() if _is_json(line)]
        return [line for line in lines if line["level"] in ("error", "critical")]

    def leaks(self) -> list[str]:
        """Lines of logs with something in them that looks like a token, a session's secret or a signing key."""
        return [line for child in self.children.values() for line in child.log_lines() if _SECRET.search(line)]

    def log_tails(self) -> str:
        """The ends of all logs."""
        return "\n\n".join(f"--- {name}\n{child.log_tail()}" for name, child in self.children.items())


async def _enter(connection: asyncpg.Connection, slug: str, token: str) -> None:
    async with connection.transaction():
        tenant = await create_tenant(connection, slug, "")
        await create_project(connection, Sealer(ENCRYPTION_KEY), tenant, "default", ProjectChange())
        await insert_token(
            connection,
            id=UlidFactory(SystemClock(), random.Random()).new(),
            tenant=tenant,
            name="test",
            token_hash=hash_token(token),
            abilities=ALL_ABILITIES,
            expires_ms=None,
        )


def _is_json(line: str) -> bool:
    return line.startswith("{")
