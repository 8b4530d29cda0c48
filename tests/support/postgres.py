"""A real Postgres for tests: one embedded server a session, migrated templates, one clone of them a test.

fsync stays on, as the engine demands, but costs little where the server's data are in memory. The server goes with the
test process, however that ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from services.core.engine.bootstrap import ensure_bootstrap
from services.core.runtime.sealing import Sealer
from services.core.store.database import PASSING, Database
from services.core.store.migrate import migrate
from services.embedded.stack import EmbeddedStack
from tests.support.homes import temporary_home
from tests.support.tenancy import BOOTSTRAP_TOKEN, ENCRYPTION_KEY

T = TypeVar("T")

_MIGRATED = "runr_template"
_ENTERED = "runr_template_with_tenant"


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a loop and thread of its own: fixtures are sync and must not touch the test's loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def with_database(url: str, database: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


async def execute(url: str, statement: str) -> None:
    """One statement outside a transaction."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


class KeptConnection:
    """One connection that tests share, whatever their loops: it has a loop and a thread of its own, and is made anew
    where a test has stopped the server meanwhile.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._thread = ThreadPoolExecutor(1)
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection | None = None

    def run(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """What comes of `work`, which is done again where the kept connection was lost."""
        return self._thread.submit(self._runner.run, self._once_more(work)).result()

    def close(self) -> None:
        """Give up the connection and the thread."""
        if self._connection is not None:
            self._thread.submit(self._runner.run, self._connection.close()).result()
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    async def _once_more(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        if self._connection is not None:
            try:
                return await work(self._connection)
            except PASSING:
                self._connection.terminate()
        self._connection = await asyncpg.connect(self._url)
        return await work(self._connection)


class Databases:
    """Makes and drops databases of the session's server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept = KeptConnection(url)
        self._numbers = itertools.count(1)
        self._templates: set[str] = set()

    def make(self, *, of: str = "template1") -> str:
        """The URL of a new database, a copy of the database `of`."""
        name = f"test_{next(self._numbers)}"
        # The files are copied as they are: the other strategy writes each of their pages to the log first.
        self._execute(f"create database {name} template {of} strategy file_copy")
        return with_database(self._url, name)

    def drop(self, url: str) -> None:
        """Drop it, whoever still uses it."""
        self._execute(f"drop database {urlsplit(url).path[1:]} with (force)")

    def migrated(self) -> str:
        """The name of a template with the engine's schema."""
        return self._template(_MIGRATED, "template1", migrate)

    def entered(self) -> str:
        """The name of a template that has the default tenant too, whose many tables are slow to make."""
        return self._template(_ENTERED, self.migrated(), _enter)

    def close(self) -> None:
        """Give up the connection."""
        self._kept.close()

    def _template(self, name: str, of: str, fill: Any) -> str:
        if name not in self._templates:
            self._execute(f"create database {name} template {of} strategy file_copy")
            run_apart(fill(with_database(self._url, name)))
            self._templates.add(name)
        return name

    def _execute(self, statement: str) -> None:
        self._kept.run(lambda connection: connection.execute(statement))


async def _enter(url: str) -> None:
    database = Database(url, name="test", size=1)
    await database.open()
    await ensure_bootstrap(database, Sealer(ENCRYPTION_KEY), BOOTSTRAP_TOKEN)
    await database.close()


@pytest.fixture(scope="session")
def postgres_stack() -> Iterator[EmbeddedStack]:
    """The session's Postgres, with `stop`, `start` and `kill` for it."""
    with temporary_home("postgres", in_memory=True) as home, EmbeddedStack(home, servers=["postgres"]) as stack:
        yield stack


@pytest.fixture(scope="session")
def postgres_server_url(postgres_stack: EmbeddedStack) -> str:
    """The session's Postgres as superuser, in a database that no test uses."""
    return postgres_stack.urls["postgres"]


@pytest.fixture(scope="session")
def databases(postgres_server_url: str) -> Iterator[Databases]:
    """Makes databases of the session's Postgres."""
    made = Databases(postgres_server_url)
    yield made
    made.close()


@pytest.fixture
def empty_postgres_url(databases: Databases) -> Iterator[str]:
    """A new database with nothing in it."""
    url = databases.make()
    yield url
    databases.drop(url)


@pytest.fixture
def postgres_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new database with the engine's schema; for tests that use `tenant` also with that."""
    url = databases.make(of=databases.entered() if "tenant" in request.fixturenames else databases.migrated())
    yield url
    databases.drop(url)
