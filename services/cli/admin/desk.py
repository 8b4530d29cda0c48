"""Where the operator works: a connection to the installation's database, and a name for the audit log."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

import asyncpg

from services.cli.failure import Failure
from services.cli.table import table
from services.core.domain.caller import Caller
from services.core.domain.errors import DomainError
from services.core.domain.role import OWNER, ROLES
from services.core.engine.tokens import OPERATOR
from services.core.runtime.clock import SystemClock
from services.core.runtime.config import ConfigError, load
from services.core.runtime.ids import UlidFactory
from services.core.runtime.service import EXIT_USAGE
from services.core.runtime.settings import DatabaseSettings
from services.core.store.access import find_tenant
from services.core.store.connect_fault import CONNECT_FAULTS, connect_fault
from services.core.store.database import translated
from services.core.store.migrate import missing_migrations
from services.embedded.home import Home


@dataclass(frozen=True, slots=True)
class Desk:
    """What every command needs. What it does is one transaction."""

    connection: asyncpg.Connection
    ids: UlidFactory
    actor: str

    async def tenant(self, slug: str) -> int:
        """The id of a tenant. Raises Failure."""
        found = await find_tenant(self.connection, slug)
        if found is None:
            raise Failure(f"there is no tenant {slug}: `runr admin tenant list` names them all")
        return found.id

    async def caller(self, slug: str) -> Caller:
        """The operator as an owner of a tenant, who belongs to no user."""
        return Caller(await self.tenant(slug), self.actor, frozenset(ROLES[OWNER]))


@asynccontextmanager
async def desk(environ: Mapping[str, str]) -> AsyncIterator[Desk]:
    """The database of DATABASE_URL, or that of the stack which `runr dev` has left in the home. Raises Failure."""
    home = Home.of(environ)
    url = environ.get("DATABASE_URL") or home.recall("stack.json").get("database_url")
    if not url:
        said = f"no stack of `runr dev` in {home.path}: start one, go to its folder, set RUNR_HOME, or set DATABASE_URL"
        raise Failure(said, EXIT_USAGE)
    try:
        settings = load(DatabaseSettings, {**environ, "DATABASE_URL": url})
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    try:
        connection = await asyncpg.connect(settings.url, timeout=10, server_settings={"application_name": "runr-admin"})
    except CONNECT_FAULTS as error:
        raise Failure(connect_fault(error, settings.url)) from error
    try:
        if await missing_migrations(connection):
            raise Failure("this database is not migrated: run `runr migrate` first")
        with translated():
            async with connection.transaction():
                yield Desk(connection, UlidFactory(SystemClock(), SystemRandom()), _actor())
    except DomainError as error:
        faults = [f"{fault.path}: {fault.message}" for fault in error.errors]
        raise Failure("; ".join(faults) or error.message) from error
    finally:
        await connection.close()


def show(given: Any, rows: Sequence[Mapping[str, Any]], nothing: str) -> None:
    """Print rows as a table, or as a JSON list."""
    if given.json:
        sys.stdout.write(json.dumps(list(rows), indent=2) + "\n")
    elif not rows:
        sys.stdout.write(f"{nothing}\n")
    else:
        head = tuple(name.upper() for name in rows[0])
        sys.stdout.write(table(head, [[_cell(value) for value in row.values()] for row in rows]))


def tell(given: Any, made: Mapping[str, Any], text: str) -> None:
    """Print what was made, as JSON or in words."""
    sys.stdout.write((json.dumps(made, indent=2) if given.json else text) + "\n")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(value)
    return "" if value is None else str(value)


def _actor() -> str:
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"{OPERATOR}{name}@{socket.gethostname()}"
