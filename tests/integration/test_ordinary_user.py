"""The user of DATABASE_URL owns its database and has no other right (docs/operations.md): that is enough."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from services.cli.doctor.database_checks import company, opened, schema, server
from services.cli.doctor.invariants import invariants
from services.cli.doctor.waiting import waiting
from services.core.engine.bootstrap import ensure_bootstrap
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database, server_identity
from services.core.store.migrate import migrate
from services.core.store.queries import queries
from tests.support.postgres import Databases, execute, run_apart
from tests.support.tenancy import BOOTSTRAP_TOKEN, ENCRYPTION_KEY

ROLE = "runr_ordinary"


@pytest.fixture
def owned(databases: Databases) -> Iterator[str]:
    """The URL of an empty database, as its owner."""
    url = databases.make()
    name = urlsplit(url).path[1:]
    for statement in (f"create role {ROLE} login password 'ordinary'", f"alter database {name} owner to {ROLE}"):
        run_apart(execute(url, statement))
    place = urlsplit(url)
    own = place._replace(netloc=f"{ROLE}:ordinary@{place.netloc.rpartition('@')[2]}")
    yield urlunsplit(own)
    databases.drop(url)
    run_apart(execute(urlunsplit(place._replace(path="/postgres")), f"drop role {ROLE}"))


async def test_the_schema_is_made_and_used_by_its_owner(owned: str) -> None:
    assert await migrate(owned)
    database = Database(owned, name="ordinary", size=2)
    await database.open()
    try:
        await ensure_bootstrap(database, Sealer(ENCRYPTION_KEY), BOOTSTRAP_TOKEN)
        async with database.connection() as connection:
            assert await server_identity(connection)
            assert await connection.fetch(queries("scheduler")["owners"])
            assert await connection.fetchrow(queries("scheduler")["fire"], list(range(64)), 10, True, 0)
            assert await connection.fetchrow(queries("scheduler")["backlog"], 10)
            assert await connection.fetchval(queries("access")["prune_audit"], 0, 10) is not None
    finally:
        await database.close()


async def test_doctor_needs_no_more(owned: str) -> None:
    await migrate(owned)
    connection, _ = await opened(owned)
    assert connection is not None
    try:
        for look in (server, schema, company, waiting, invariants):
            assert [finding async for finding in look(connection) if "permission" in finding.reason] == []
    finally:
        await connection.close()
