"""`runr doctor`: is everything that the engine stands on there, and set as it must be?

Looks at DATABASE_URL and NATS_URL, or at the stack that `runr dev` has left in the home.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import aiohttp
import asyncpg
import nats
import nats.errors

from services.cli.failure import Failure
from services.core.runtime.config import ConfigError, load
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from services.core.runtime.settings import HEALTH_PORTS, DatabaseSettings, NatsSettings
from services.embedded.home import Home

_OLDEST_POSTGRES = 150_000
_MUST_BE_ON = ("fsync", "full_page_writes", "synchronous_commit")
_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Finding:
    """One line of the report; `reason` is empty when all is well."""

    subject: str
    reason: str = ""


async def run(environ: Mapping[str, str]) -> int:
    """Prints one line per finding; 1 when any is bad."""
    stack = Home.of(environ).recall("stack.json")
    known = {"DATABASE_URL": stack.get("database_url", ""), "NATS_URL": stack.get("nats_url", ""), **environ}
    try:
        database = load(DatabaseSettings, known)
        bus = load(NatsSettings, known)
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    health = stack.get("health") or {name: f"http://127.0.0.1:{port}/readyz" for name, port in HEALTH_PORTS.items()}
    bad = False
    for check in (_postgres(database.url), _nats(bus.url), _services(health)):
        async for finding in check:
            bad = bad or bool(finding.reason)
            sys.stdout.write(f"{'FAIL' if finding.reason else 'ok':5} {finding.subject}")
            sys.stdout.write(f": {finding.reason}\n" if finding.reason else "\n")
    return EXIT_FAILED if bad else EXIT_OK


async def _postgres(url: str) -> AsyncIterator[Finding]:
    try:
        connection = await asyncpg.connect(url, timeout=_TIMEOUT_S)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        yield Finding("postgres answers", type(error).__name__)
        return
    try:
        yield Finding("postgres answers")
        version = int(await connection.fetchval("show server_version_num"))
        yield Finding("postgres version", "" if version >= _OLDEST_POSTGRES else f"{version} is older than 15")
        for name in _MUST_BE_ON:
            value = await connection.fetchval("select current_setting($1)", name)
            yield Finding(f"postgres {name}", "" if value != "off" else "is off: acknowledged work can be lost")
    finally:
        await connection.close()


async def _nats(url: str) -> AsyncIterator[Finding]:
    try:
        client = await nats.connect(url, connect_timeout=_TIMEOUT_S, allow_reconnect=False)
    except (OSError, TimeoutError, nats.errors.Error) as error:
        yield Finding("nats answers", type(error).__name__)
        return
    try:
        yield Finding("nats answers")
        try:
            await client.jetstream().account_info()
        except (TimeoutError, nats.errors.Error) as error:
            yield Finding("nats has JetStream", type(error).__name__)
        else:
            yield Finding("nats has JetStream")
    finally:
        await client.close()


async def _services(health: Mapping[str, str]) -> AsyncIterator[Finding]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session:
        for name, url in health.items():
            try:
                async with session.get(url) as answer:
                    checks = (await answer.json())["checks"]
                    reasons = ", ".join(f"{part}: {state}" for part, state in checks.items() if state != "ok")
                    yield Finding(f"{name} is ready", "" if answer.status == 200 else reasons)
            except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
                yield Finding(f"{name} is ready", type(error).__name__)
