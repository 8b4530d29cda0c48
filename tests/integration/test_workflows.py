"""Declaring, archiving and pausing workflows, against a real Postgres."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from services.core.domain.errors import InvalidInput, Malformed, NotFound
from services.core.engine.declare import Declared, Declarer
from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.workflows import definitions_version, page_of_workflows
from tests.support.tenancy import database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]


class Told:
    """Counts the hints that definitions have changed."""

    def __init__(self) -> None:
        self.tenants: list[int] = []

    def __call__(self, tenant: int) -> None:
        self.tenants.append(tenant)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def declarer(database: Database, told: Told) -> Declarer:
    return Declarer(database, told)


def body(*workflows: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"workflows": workflows, **more}).encode()


def active(declared: Declared) -> list[str]:
    return [row.name for row in declared.workflows if row.archived_ms is None]


async def stored(database: Database, tenant: int) -> list[tuple[str, bool, bool]]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            f"select name, is_active, archived_at is null as declared from t_{tenant}.workflows order by name"
        )
    return [tuple(row) for row in rows]


async def version(database: Database, tenant: int) -> int | None:
    async with database.connection() as connection:
        return await definitions_version(connection, tenant)


async def test_a_list_is_stored_with_its_defaults(declarer: Declarer, tenant: int, told: Told) -> None:
    given = {"name": "ship", "triggers": [{"event": "order.created", "if": "event.data.total > 10"}], "timeout": 3600}
    declared = await declarer.declare(tenant, "default", body(given))
    (record,) = declared.records()
    assert json.loads(record.definition) == {
        "name": "ship",
        "description": "",
        "triggers": [{"event": "order.created", "if": "event.data.total > 10"}],
        "retries": 3,
        "timeout": "1h",
        "concurrency": [],
        "cancel_on": [],
    }
    assert (record.project, record.source, record.is_active, record.archived_ms) == ("default", "api", True, None)
    assert len(record.version) == 64
    assert told.tenants == [tenant]


async def test_the_list_is_replaced_as_a_whole(declarer: Declarer, database: Database, tenant: int) -> None:
    await declarer.declare(tenant, "default", body({"name": "a"}, {"name": "b"}))
    second = await declarer.declare(tenant, "default", body({"name": "b", "retries": 0}, {"name": "c"}))
    assert active(second) == ["b", "c"]
    assert await stored(database, tenant) == [("a", True, False), ("b", True, True), ("c", True, True)]
    third = await declarer.declare(tenant, "default", body({"name": "a"}))
    assert active(third) == ["a"]
    kept = {row.name: row.id for row in second.workflows}
    assert {row.name: row.id for row in third.workflows} == kept


async def test_every_fault_is_listed_and_nothing_is_stored(
    declarer: Declarer, database: Database, tenant: int, told: Told
) -> None:
    await declarer.declare(tenant, "default", body({"name": "kept"}))
    before = await version(database, tenant)
    faulty = body(
        {"name": "ok"},
        {"name": "app", "retries": 21, "retires": 3},
        {"name": "x", "priority": 1, "checkpoint": {"max_steps": 0}, "concurrency": 2},
        {"name": "x", "triggers": [{"cron": "0 0 9 * * *"}, {"queue": "in"}, {"event": "runr/nope"}, {"queue": ""}]},
    )
    with pytest.raises(InvalidInput) as refused:
        await declarer.declare(tenant, "default", faulty)
    assert sorted({error.path for error in refused.value.errors}) == [
        "workflows[1].name",
        "workflows[1].retires",
        "workflows[1].retries",
        "workflows[2].checkpoint.max_steps",
        "workflows[2].priority",
        "workflows[3].name",
        "workflows[3].triggers[0].cron",
        "workflows[3].triggers[2].event",
        "workflows[3].triggers[3].queue",
    ]
    messages = " ".join(error.message for error in refused.value.errors)
    assert "not supported yet" in messages
    assert "five fields" in messages
    assert await stored(database, tenant) == [("kept", True, True)]
    assert await version(database, tenant) == before
    assert told.tenants == [tenant]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"", Malformed),
        (b"{", Malformed),
        (b"\xff", Malformed),
        (b'{"workflows": [], "workflows": []}', Malformed),
        (b"{}", InvalidInput),
        (b'{"workflows": {}}', InvalidInput),
        (b'{"workflows": null}', InvalidInput),
        (b'{"workflows": [], "more": 1}', InvalidInput),
        (b'"workflows"', InvalidInput),
        (b'{"workflows": [null]}', InvalidInput),
    ],
)
async def test_bodies_that_are_no_list(declarer: Declarer, tenant: int, text: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await declarer.declare(tenant, "default", text)


async def test_a_list_that_is_declared_again_changes_nothing(
    declarer: Declarer, database: Database, tenant: int, told: Told
) -> None:
    first = await declarer.declare(tenant, "default", body({"name": "a", "retries": 3}, {"name": "b"}))
    before = await version(database, tenant)
    again = await declarer.declare(tenant, "default", body({"name": "b"}, {"name": "a"}))
    assert again.workflows == first.workflows
    assert again.project.defs_hash == first.project.defs_hash
    assert await version(database, tenant) == before
    assert told.tenants == [tenant]


async def test_pausing_survives_declaring(declarer: Declarer, database: Database, tenant: int, told: Told) -> None:
    await declarer.declare(tenant, "default", body({"name": "a"}, {"name": "b"}))
    paused = await declarer.set_active(tenant, "default", "a", False)
    assert [(row.name, row.is_active) for row in paused.workflows] == [("a", False)]
    await declarer.declare(tenant, "default", body({"name": "a", "retries": 1}))
    await declarer.declare(tenant, "default", body())
    await declarer.declare(tenant, "default", body({"name": "a"}))
    assert await stored(database, tenant) == [("a", False, True), ("b", True, False)]
    resumed = await declarer.set_active(tenant, "default", "a", True)
    assert resumed.workflows[0].is_active


async def test_pausing_twice_is_one_change(declarer: Declarer, database: Database, tenant: int, told: Told) -> None:
    await declarer.declare(tenant, "default", body({"name": "a"}))
    await declarer.set_active(tenant, "default", "a", False)
    before = await version(database, tenant)
    await declarer.set_active(tenant, "default", "a", False)
    assert await version(database, tenant) == before
    assert len(told.tenants) == 2


async def test_what_does_not_exist(declarer: Declarer, database: Database, tenant: int) -> None:
    async with database.connection() as connection:
        other = await create_tenant(connection, "other", "Other")
    for call in (
        declarer.declare(tenant, "nowhere", body()),
        declarer.declare(other, "default", body()),
        declarer.set_active(tenant, "default", "nothing", False),
        declarer.store_file(tenant, "nowhere", body()),
    ):
        with pytest.raises(NotFound):
            await call


async def test_declarations_at_once_end_as_one_of_them(declarer: Declarer, database: Database, tenant: int) -> None:
    lists = [[f"w{number}-{index}" for index in range(5)] for number in range(6)]
    await asyncio.gather(
        *(declarer.declare(tenant, "default", body(*({"name": name} for name in names))) for names in lists)
    )
    declared = sorted(name for name, _, is_declared in await stored(database, tenant) if is_declared)
    assert declared in [sorted(names) for names in lists]
    assert len(await stored(database, tenant)) == 30


async def test_five_hundred_workflows_at_once(declarer: Declarer, tenant: int) -> None:
    names = [f"w{number:03}" for number in range(500)]
    declared = await declarer.declare(tenant, "default", body(*({"name": name} for name in names)))
    assert active(declared) == names
    with pytest.raises(InvalidInput, match="500"):
        await declarer.declare(tenant, "default", body(*({"name": name} for name in [*names, "one-more"])))


async def test_a_page_leaves_the_archived_out_unless_asked(declarer: Declarer, database: Database, tenant: int) -> None:
    await declarer.declare(tenant, "default", body({"name": "b"}, {"name": "B"}, {"name": "a"}, {"name": "a-1"}))
    declared = await declarer.declare(tenant, "default", body({"name": "b"}, {"name": "a"}, {"name": "a-1"}))
    project = declared.project.id
    async with database.connection() as connection:
        first = await page_of_workflows(connection, tenant, project, after=None, archived=False, limit=2)
        rest = await page_of_workflows(connection, tenant, project, after="a-1", archived=False, limit=2)
        whole = await page_of_workflows(connection, tenant, project, after=None, archived=True, limit=9)
    assert [row.name for row in (*first, *rest)] == ["a", "a-1", "b"]
    assert [row.name for row in whole] == ["B", "a", "a-1", "b"]


async def test_the_fallback_file_is_checked_and_kept(declarer: Declarer, database: Database, tenant: int) -> None:
    checked = await declarer.store_file(tenant, "default", b'[{"name": "a", "shiny": 1}]')
    assert [warning.path for warning in checked.warnings] == ["workflows[0].shiny"]
    with pytest.raises(InvalidInput, match="not supported yet"):
        await declarer.store_file(tenant, "default", b'[{"name": "a", "singleton": {"mode": "skip"}}]')
    async with database.connection() as connection:
        kept = await connection.fetchval(f"select defs_file from t_{tenant}.projects")
    assert kept == '[{"name": "a", "shiny": 1}]'
    assert await stored(database, tenant) == []


async def test_the_same_name_in_two_tenants(
    declarer: Declarer, database: Database, sealer: Sealer, tenant: int
) -> None:
    async with database.transaction() as connection:
        other = await create_tenant(connection, "other", "Other")
        await create_project(connection, sealer, other, "default", ProjectChange())
    await declarer.declare(tenant, "default", body({"name": "a"}))
    await declarer.declare(other, "default", body({"name": "a", "retries": 0}))
    await declarer.declare(other, "default", body())
    assert await stored(database, tenant) == [("a", True, True)]
    assert await stored(database, other) == [("a", True, False)]


async def test_the_number_of_workflows_can_be_set(database: Database, told: Told, tenant: int) -> None:
    declarer = Declarer(database, told, most=2)
    assert active(await declarer.declare(tenant, "default", body({"name": "a"}, {"name": "b"}))) == ["a", "b"]
    three = body({"name": "a"}, {"name": "b"}, {"name": "c"})
    for declare in (declarer.declare, declarer.store_file):
        with pytest.raises(InvalidInput, match="at most 2 workflows a project, these are 3"):
            await declare(tenant, "default", three)
    await declarer.store_file(tenant, "default", body({"name": "a"}, {"name": "b"}))
