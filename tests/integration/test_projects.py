"""Projects, their keys and their end, against a real Postgres."""

from __future__ import annotations

import asyncio
import uuid
from uuid import UUID

import asyncpg
import pytest

from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, InvalidInput, NotFound
from services.core.engine.declare import Declarer
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.projects import ProjectChange, create_project, update_project
from services.core.engine.signing_keys import fingerprint, open_keys
from services.core.runtime.sealing import SealBroken, Sealer
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project, list_projects
from services.core.store.workflows import definitions_version
from services.scheduler.delete_project import ProjectDeleter
from tests.support.tenancy import database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

DAY_MS = 86_400_000


class Cancels(NullPublisher):
    """Remembers whom it told that runs are gone."""

    def __init__(self) -> None:
        self.cancelled: dict[int, set[UUID]] = {}

    def publish_cancel(self, owner: int, run_ids: object) -> None:
        assert isinstance(run_ids, list)
        self.cancelled.setdefault(owner, set()).update(run_ids)


async def make(database: Database, sealer: Sealer, tenant: int, slug: str, **change: str) -> ProjectRow:
    async with database.transaction() as connection:
        return await create_project(connection, sealer, tenant, slug, ProjectChange(**change))


async def change(database: Database, sealer: Sealer, tenant: int, slug: str, **wanted: str) -> ProjectRow:
    async with database.transaction() as connection:
        return await update_project(connection, sealer, tenant, slug, ProjectChange(**wanted))


async def version(database: Database, tenant: int) -> int | None:
    async with database.connection() as connection:
        return await definitions_version(connection, tenant)


async def test_a_new_project_serves_workflows_and_has_a_sealed_key(
    database: Database, sealer: Sealer, tenant: int
) -> None:
    project = await make(database, sealer, tenant, "orders")
    assert (project.name, project.trigger_type, project.endpoint_url) == ("orders", "workflow", None)
    keys = open_keys(sealer, project, DAY_MS)
    assert keys is not None
    assert keys.current.startswith("wfsk_")
    assert len(keys.current) == len("wfsk_") + 43
    assert project.key_print == fingerprint(keys.current)
    assert project.signing_key is not None
    assert keys.current.encode() not in project.signing_key
    assert keys.current not in repr(keys)


async def test_a_sealed_key_does_not_open_in_another_row(database: Database, sealer: Sealer, tenant: int) -> None:
    project, other = await make(database, sealer, tenant, "orders"), await make(database, sealer, tenant, "other")
    async with database.connection() as connection:
        await connection.execute(
            f"update t_{tenant}.projects set signing_key = $1 where id = $2", project.signing_key, other.id
        )
        copied = await get_project(connection, tenant, "other")
    with pytest.raises(SealBroken):
        open_keys(sealer, copied, DAY_MS)


@pytest.mark.parametrize("slug", ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a" * 64, "a\n"])
async def test_slugs_that_are_refused(database: Database, sealer: Sealer, tenant: int, slug: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await make(database, sealer, tenant, slug)
    assert [error.path for error in refused.value.errors] == ["slug"]


@pytest.mark.parametrize("slug", ["a", "0", "a-b", "a" * 63])
async def test_slugs_that_are_taken(database: Database, sealer: Sealer, tenant: int, slug: str) -> None:
    assert (await make(database, sealer, tenant, slug)).slug == slug


async def test_every_fault_is_listed(database: Database, sealer: Sealer, tenant: int) -> None:
    with pytest.raises(InvalidInput) as refused:
        await make(database, sealer, tenant, "Ä", name="n" * 201, trigger_type="event", queue_stream="a b")
    paths = [error.path for error in refused.value.errors]
    assert paths == ["slug", "name", "config.trigger_type", "config.queue_stream"]
    assert "POST /api/events" in refused.value.errors[2].message


async def test_one_slug_at_once(database: Database, sealer: Sealer, tenant: int) -> None:
    made = await asyncio.gather(*(make(database, sealer, tenant, "orders") for _ in range(6)), return_exceptions=True)
    assert sum(isinstance(each, ProjectRow) for each in made) == 1
    assert sum(isinstance(each, Conflict) for each in made) == 5


async def test_only_workflow_projects_have_a_key(database: Database, sealer: Sealer, tenant: int) -> None:
    for kind in ("http", "schedule", "queue"):
        project = await make(database, sealer, tenant, kind, trigger_type=kind)
        assert (project.signing_key, project.key_print) == (None, None)
    changed = await change(database, sealer, tenant, "http", trigger_type="workflow")
    assert open_keys(sealer, changed, DAY_MS) is not None


async def test_a_change_leaves_what_it_does_not_name(database: Database, sealer: Sealer, tenant: int) -> None:
    await make(database, sealer, tenant, "orders", name="Orders", queue_stream="incoming")
    changed = await change(database, sealer, tenant, "orders", name="Bestellungen")
    assert (changed.name, changed.trigger_type, changed.queue_stream) == ("Bestellungen", "workflow", "incoming")
    changed = await change(database, sealer, tenant, "orders", queue_stream="")
    assert (changed.name, changed.queue_stream) == ("Bestellungen", None)


async def test_a_project_with_workflows_goes_on_serving_them(database: Database, sealer: Sealer, tenant: int) -> None:
    declarer = Declarer(database, lambda _: None)
    await declarer.declare(tenant, "default", b'{"workflows": [{"name": "ship"}]}')
    with pytest.raises(Conflict, match="ship"):
        await change(database, sealer, tenant, "default", trigger_type="http")
    await declarer.declare(tenant, "default", b'{"workflows": []}')
    await change(database, sealer, tenant, "default", trigger_type="http")
    with pytest.raises(Conflict, match="only workflow"):
        await declarer.declare(tenant, "default", b'{"workflows": []}')


async def test_a_project_stored_with_the_event_trigger_still_shows(
    database: Database, sealer: Sealer, tenant: int
) -> None:
    await make(database, sealer, tenant, "old", trigger_type="http")
    async with database.connection() as connection:
        await connection.execute(f"update t_{tenant}.projects set trigger_type = 'event' where slug = 'old'")
    assert (await change(database, sealer, tenant, "old", name="Old")).trigger_type == "event"


async def test_each_change_moves_the_version(database: Database, sealer: Sealer, tenant: int) -> None:
    versions = [await version(database, tenant)]
    await make(database, sealer, tenant, "orders")
    versions.append(await version(database, tenant))
    await change(database, sealer, tenant, "orders", name="Orders")
    versions.append(await version(database, tenant))
    assert versions == sorted({each for each in versions if each is not None})
    assert len(versions) == 3


async def test_pages_by_slug(database: Database, sealer: Sealer, tenant: int) -> None:
    for slug in ("b", "a-1", "a", "c", "a1"):
        await make(database, sealer, tenant, slug)
    async with database.connection() as connection:
        first = await list_projects(connection, tenant, after=None, limit=3)
        rest = await list_projects(connection, tenant, after=first[-1].slug, limit=10)
    assert [row.slug for row in (*first, *rest)] == ["a", "a-1", "a1", "b", "c", "default"]


async def test_another_tenants_project_does_not_exist(database: Database, sealer: Sealer, tenant: int) -> None:
    async with database.connection() as connection:
        other = await create_tenant(connection, "other", "Other")
    await make(database, sealer, other, "theirs")
    async with database.connection() as connection:
        with pytest.raises(NotFound):
            await get_project(connection, tenant, "theirs")
        assert [row.slug for row in await list_projects(connection, tenant, after=None, limit=9)] == ["default"]


async def start(connection: asyncpg.Connection, tenant: int, project: ProjectRow, *, idem: str | None = None) -> UUID:
    """A queued run of the project's workflow `ship`, written as the engine does."""
    run = uuid.uuid4()
    wf = await connection.fetchval(
        f"select id from t_{tenant}.workflows where project = $1 and name = 'ship'", project.id
    )
    values = [run], [tenant], [wf], [project.id], ["api"], [uuid.uuid4()], ["e"], [1], ["{}"], [idem], [False]
    later = [None], [None], ["[]"], ["v"], [None], [4], [60_000], [None], [None], [0], [0], [None], [None]
    arguments = ", ".join(f"${number}" for number in range(1, 25))
    await connection.fetch(f"select * from rt.start_v1({arguments})", *values, *later)
    return run


async def test_deleting_ends_and_removes_everything(database: Database, sealer: Sealer, tenant: int) -> None:
    publisher = Cancels()
    changes: list[int] = []
    deleter = ProjectDeleter(database, Hints(publisher), changes.append)
    declarer = Declarer(database, lambda _: None)
    caller = Caller(tenant=tenant, token_id="t", abilities=frozenset())
    doomed, kept = await make(database, sealer, tenant, "doomed"), await make(database, sealer, tenant, "kept")
    for project in (doomed, kept):
        await declarer.declare(tenant, project.slug, b'{"workflows": [{"name": "ship"}]}')
    async with database.connection() as connection:
        running = await start(connection, tenant, doomed, idem="s:1")
        await connection.execute("update rt.live set st = 'r', owner = 7, qk = null where id = $1", running)
        queued = await start(connection, tenant, doomed)
        survivor = await start(connection, tenant, kept)
    await deleter.delete(caller, "doomed")
    assert publisher.cancelled == {7: {running}}
    async with database.connection() as connection:
        assert [row["id"] for row in await connection.fetch("select id from rt.live")] == [survivor]
        for table in ("runs", "ends", "steps", "attempts"):
            column = "id" if table == "runs" else "run"
            left = await connection.fetchval(
                f"select count(*) from t_{tenant}.{table} where {column} = any ($1)", [running, queued]
            )
            assert left == 0, table
        assert await connection.fetchval("select count(*) from rt.idem") == 0
        assert await connection.fetchval(f"select count(*) from t_{tenant}.workflows") == 1
        assert await connection.fetchval("select subject from rt.audit where action = 'project.delete'") == "doomed"
    assert changes
    with pytest.raises(NotFound):
        await deleter.delete(caller, "doomed")
