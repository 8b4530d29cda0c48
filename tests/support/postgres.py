"""A real Postgres for tests: one embedded server a session, one migrated template, one clone of it a test.

fsync stays on, as the engine demands. The server goes with the test process, however that ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from services.core.store.migrate import migrate
from services.embedded.stack import EmbeddedStack
from tests.support.homes import temporary_home

T = TypeVar("T")

TEMPLATE = "runr_template"


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


@pytest.fixture(scope="session")
def postgres_stack() -> Iterator[EmbeddedStack]:
    """The session's Postgres, with `stop`, `start` and `kill` for it."""
    with temporary_home("postgres") as home, EmbeddedStack(home, servers=["postgres"]) as stack:
        yield stack


@pytest.fixture(scope="session")
def postgres_server_url(postgres_stack: EmbeddedStack) -> str:
    """The session's Postgres as superuser, in a database that no test uses."""
    return postgres_stack.urls["postgres"]


@pytest.fixture(scope="session")
def _names() -> Iterator[str]:
    return (f"test_{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def _template(postgres_server_url: str) -> str:
    run_apart(execute(postgres_server_url, f"create database {TEMPLATE}"))
    run_apart(migrate(with_database(postgres_server_url, TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def empty_postgres_url(postgres_server_url: str, _names: Iterator[str]) -> Iterator[str]:
    """A new database with nothing in it."""
    name = next(_names)
    run_apart(execute(postgres_server_url, f"create database {name}"))
    yield with_database(postgres_server_url, name)
    run_apart(execute(postgres_server_url, f"drop database {name} with (force)"))


@pytest.fixture
def postgres_url(postgres_server_url: str, _template: str, _names: Iterator[str]) -> Iterator[str]:
    """A new database with the engine's schema, cloned from the migrated template."""
    name = next(_names)
    run_apart(execute(postgres_server_url, f"create database {name} template {_template}"))
    yield with_database(postgres_server_url, name)
    run_apart(execute(postgres_server_url, f"drop database {name} with (force)"))
