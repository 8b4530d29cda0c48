"""`runr doctor`: is everything that the engine stands on there and set as it must be, does what must hold hold, does
work flow, and if not, what is to be done?

Looks at DATABASE_URL and NATS_URL, or at the stack that `runr dev` has left in the home. It changes nothing, and what
it reads is bounded. Exit codes: 0 all is well, or something is to be watched; 1 something fails; 2 wrong settings.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import asyncpg

from services.cli.doctor.bus_check import bus
from services.cli.doctor.database_checks import company, opened, schema, server
from services.cli.doctor.finding import Finding, State
from services.cli.doctor.functions import functions
from services.cli.doctor.invariants import invariants
from services.cli.doctor.service_checks import counted, hints, services
from services.cli.doctor.waiting import waiting
from services.cli.failure import Failure
from services.core.runtime.config import ConfigError, load
from services.core.runtime.parse import address as parse_address
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from services.core.runtime.settings import HEALTH_PORTS, DatabaseSettings, NatsSettings
from services.embedded.home import Home

_NONE = "none"
_LOOK_S = 2.0
"""At least so long is between the two looks at counters."""


async def run(environ: Mapping[str, str], *, health: Sequence[str] = (), as_json: bool = False) -> int:
    """Prints what it finds, a line each, or with `as_json` as one object at the end. `health`: see `_health`."""
    home = Home.of(environ)
    stack = home.recall("stack.json")
    if not stack and not environ.get("DATABASE_URL"):
        raise Failure(
            f"no stack of `runr dev` in {home.path}: start one, go to its folder, "
            f"set RUNR_HOME, or set DATABASE_URL and NATS_URL",
            EXIT_USAGE,
        )
    known = {"DATABASE_URL": stack.get("database_url", ""), "NATS_URL": stack.get("nats_url", ""), **environ}
    try:
        database = load(DatabaseSettings, known)
        nats = load(NatsSettings, known)
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    asked = _health(stack, health)
    found: list[Finding] = []
    async for finding in _everything(database.url, nats, asked):
        found.append(finding)
        if not as_json:
            sys.stdout.write(finding.lines())
            sys.stdout.flush()
    fails = any(finding.state is State.FAIL for finding in found)
    if as_json:
        told: dict[str, Any] = {"ok": not fails, "findings": [finding.as_json() for finding in found]}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return EXIT_FAILED if fails else EXIT_OK


def _health(stack: Mapping[str, Any], given: Sequence[str]) -> Mapping[str, str]:
    """Where each service tells whether it is ready: as given (`NAME=HOST:PORT`, or `none`), as the stack of the home
    says, or at the default ports.
    """
    if not given:
        known: Mapping[str, str] | None = stack.get("health")
        return known or {name: f"http://127.0.0.1:{port}/readyz" for name, port in HEALTH_PORTS.items()}
    places: dict[str, str] = {}
    for each in given:
        if each == _NONE:
            continue
        name, _, address = each.partition("=")
        try:
            places[name] = f"http://{parse_address(address)}/readyz"
        except ValueError as error:
            raise Failure(f"--health {each}: NAME=HOST:PORT, or none; the address {error}", EXIT_USAGE) from None
    return places


async def _everything(database: str, nats: NatsSettings, health: Mapping[str, str]) -> AsyncIterator[Finding]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await counted(health)
    async for finding in _database(database):
        yield finding
    async for finding in bus(nats.url, nats.prefix):
        yield finding
    reached = False
    async for finding in services(health):
        reached = reached or finding.state is State.OK
        yield finding
    if reached:
        await asyncio.sleep(max(0.0, began + _LOOK_S - loop.time()))
        for finding in hints(before, await counted(health)):
            yield finding


async def _database(url: str) -> AsyncIterator[Finding]:
    connection, finding = await opened(url)
    yield finding
    if connection is None:
        return
    try:
        async for finding in server(connection):
            yield finding
        fits = True
        async for finding in schema(connection):
            fits = finding.state is not State.FAIL
            yield finding
        if fits:
            for look in (company, waiting, functions, invariants):
                async for finding in look(connection):
                    yield finding
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = f"the look broke off: {type(error).__name__}: {error}"
        yield Finding.of("postgres goes on answering", reason, "ask again; its log may say why")
    finally:
        await connection.close(timeout=3)
