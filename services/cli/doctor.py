"""`runr doctor`: is everything that the engine stands on there, and set as it must be?

Looks at DATABASE_URL and NATS_URL, or at the stack that `runr dev` has left in the home.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import nats
import nats.errors

from services.cli.failure import Failure
from services.core.runtime.config import ConfigError, load
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from services.core.runtime.settings import HEALTH_PORTS, DatabaseSettings, NatsSettings
from services.core.store.connect_fault import CONNECT_FAULTS, connect_fault
from services.embedded.home import Home

_OLDEST_POSTGRES = 150_000
_MUST_BE_ON = ("fsync", "full_page_writes", "synchronous_commit")
_TIMEOUT_S = 5.0
_NATS_S = 3.0
_ALL = "all"
_FINE = {"ok", "connected"}


@dataclass(frozen=True)
class Finding:
    """One line of the report; `reason` is empty when all is well."""

    subject: str
    reason: str = ""


async def run(environ: Mapping[str, str]) -> int:
    """Prints one line per finding; 1 when any is bad."""
    home = Home.of(environ)
    stack = home.recall("stack.json")
    if not stack and not environ.get("DATABASE_URL"):
        raise Failure(
            f"no stack of `runr dev` in {home.path}: go to its folder, set RUNR_HOME, or set DATABASE_URL and NATS_URL",
            EXIT_USAGE,
        )
    known = {"DATABASE_URL": stack.get("database_url", ""), "NATS_URL": stack.get("nats_url", ""), **environ}
    try:
        database = load(DatabaseSettings, known)
        bus = load(NatsSettings, known)
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    health = stack.get("health") or {name: f"http://127.0.0.1:{port}/readyz" for name, port in HEALTH_PORTS.items()}
    bad = False
    for check in (_postgres(database.url), _nats(bus.url), services(health)):
        async for finding in check:
            bad = bad or bool(finding.reason)
            sys.stdout.write(f"{'FAIL' if finding.reason else 'ok':5} {finding.subject}")
            sys.stdout.write(f": {finding.reason}\n" if finding.reason else "\n")
    return EXIT_FAILED if bad else EXIT_OK


async def _postgres(url: str) -> AsyncIterator[Finding]:
    try:
        connection = await asyncpg.connect(url, timeout=_TIMEOUT_S)
    except CONNECT_FAULTS as error:
        yield Finding("postgres answers", connect_fault(error, url))
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
    faults: list[Exception] = []

    async def note(fault: Exception) -> None:
        faults.append(fault)

    try:
        async with asyncio.timeout(_NATS_S):
            # Without these the client tries a minute and more, and logs each time.
            client = await nats.connect(
                url, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, error_cb=note
            )
    except (OSError, TimeoutError, nats.errors.Error) as error:
        yield Finding("nats answers", f"{_address(url)}: {_words(faults[-1] if faults else error)}; check NATS_URL")
        return
    try:
        yield Finding("nats answers")
        try:
            await client.jetstream().account_info()
        except (TimeoutError, nats.errors.Error) as error:
            yield Finding("nats has JetStream", f"{_address(url)}: {_words(error)}; start it with --jetstream")
        else:
            yield Finding("nats has JetStream")
    finally:
        await client.close()


async def services(health: Mapping[str, str]) -> AsyncIterator[Finding]:
    """The readiness of each service at its URL; of all of them at the first URL when one process serves all."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session:
        for name, url in health.items():
            try:
                async with session.get(url) as answer:
                    report = await answer.json()
                    checks: dict[str, str] = report["checks"]
            except (aiohttp.ClientError, TimeoutError) as error:
                yield Finding(f"{name} is ready", f"{_address(url)}: {_words(error)}")
                continue
            except (KeyError, TypeError, ValueError):
                yield Finding(f"{name} is ready", f"{_address(url)}: what answers there is not a service of RunR")
                continue
            if report.get("service") == _ALL:
                # One process, one address: the other ports are not in use.
                for part, state in checks.items():
                    yield Finding(f"{part} is ready", "" if state == "ok" else state)
                return
            faults = ", ".join(f"{part}: {state}" for part, state in checks.items() if state not in _FINE)
            yield Finding(f"{name} is ready", "" if answer.status == 200 else faults)


def _address(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or url


def _words(error: Exception) -> str:
    """What happened, for a reader who does not know our libraries."""
    if isinstance(error, ConnectionRefusedError | aiohttp.ClientConnectorError):
        return "nobody listens there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
