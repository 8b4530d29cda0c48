"""The cache of definitions: right whenever it is asked, on whatever connection asks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.core.domain.expression import evaluate
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.signing_keys import new_key
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.projects import lock_project, set_endpoint, set_key
from services.core.store.workflows import bump_definitions
from tests.support.engine import HandClock
from tests.support.tenancy import database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def cache(sealer: Sealer, clock: HandClock) -> DefinitionsCache:
    return DefinitionsCache(sealer, key_grace_ms=60_000, clock=clock)


@pytest.fixture
def declarer(database: Database) -> Declarer:
    return Declarer(database, lambda _: None)


def body(*workflows: dict[str, Any]) -> bytes:
    return json.dumps({"workflows": workflows}).encode()


async def test_everything_is_found_by_what_is_known_of_it(
    database: Database, tenant: int, cache: DefinitionsCache, declarer: Declarer
) -> None:
    ship = {
        "name": "ship",
        "triggers": [{"event": "order.paid"}, {"event": "order.created", "if": "event.data.total > 10"}],
        "idempotency": "event.data.id",
        "retries": 1,
    }
    await declarer.declare(tenant, "default", body(ship, {"name": "audit", "triggers": [{"event": "order.paid"}]}))
    async with database.connection() as connection:
        found = await cache.get(connection, tenant)
    project = found.project_by_slug["default"]
    assert found.projects[project.id] is project
    entry = found.by_name[(project.id, "ship")]
    assert found.workflows[entry.id] is entry
    assert (entry.tenant, entry.project, entry.is_active, entry.archived) == (tenant, project.id, True, False)
    assert entry.definition.max_attempts == 2
    assert entry.idempotency is not None
    assert evaluate(entry.idempotency, event={"data": {"id": 7}}) == 7
    assert sorted(trigger.workflow.name for trigger in found.by_event["order.paid"]) == ["audit", "ship"]
    (created,) = found.by_event["order.created"]
    assert created.index == 1
    assert created.condition is not None
    assert evaluate(created.condition, event={"data": {"total": 11}}) is True
    assert "other" not in found.by_event


async def test_nothing_is_read_again_while_nothing_changes(
    database: Database, tenant: int, cache: DefinitionsCache, declarer: Declarer
) -> None:
    await declarer.declare(tenant, "default", body({"name": "a"}))
    async with database.connection() as connection:
        first = await cache.get(connection, tenant)
        assert await cache.get(connection, tenant) is first
        assert (await cache.get_many(connection, [tenant]))[tenant] is first


async def test_a_change_is_seen_by_the_next_who_asks(
    database: Database, tenant: int, cache: DefinitionsCache, declarer: Declarer
) -> None:
    async with database.connection() as connection:
        await cache.get(connection, tenant)
        await declarer.declare(tenant, "default", body({"name": "a", "triggers": [{"event": "e"}]}, {"name": "b"}))
        first = await cache.get(connection, tenant)
        await declarer.set_active(tenant, "default", "a", False)
        paused = await cache.get(connection, tenant)
        await declarer.declare(tenant, "default", body({"name": "b", "retries": 0}))
        archived = await cache.get(connection, tenant)
    (trigger,) = paused.by_event["e"]
    assert (trigger.workflow.is_active, trigger.workflow.archived) == (False, False)
    (trigger,) = archived.by_event["e"]
    assert (trigger.workflow.is_active, trigger.workflow.archived) == (False, True)
    project = first.project_by_slug["default"].id
    assert first.by_name[(project, "a")].version == archived.by_name[(project, "a")].version
    assert first.by_name[(project, "b")].version != archived.by_name[(project, "b")].version
    # What did not change is not parsed again.
    assert first.by_name[(project, "a")].definition is archived.by_name[(project, "a")].definition


async def test_a_change_is_seen_from_its_commit_on(database: Database, tenant: int, cache: DefinitionsCache) -> None:
    async with database.connection() as outside:
        before = await cache.get(outside, tenant)
        async with database.transaction() as inside:
            project = await lock_project(inside, tenant, "default")
            await set_endpoint(inside, tenant, project.id, "https://example.com/f")
            await bump_definitions(inside, tenant)
            assert await cache.get(outside, tenant) is before
        after = await cache.get(outside, tenant)
    assert after.project_by_slug["default"].endpoint_url == "https://example.com/f"


async def test_tenants_are_kept_apart(
    database: Database, tenant: int, cache: DefinitionsCache, declarer: Declarer
) -> None:
    await declarer.declare(tenant, "default", body({"name": "a", "triggers": [{"event": "e"}]}))
    async with database.connection() as connection:
        other = await create_tenant(connection, "other", "Other")
        found = await cache.get_many(connection, [tenant, other, 999])
    assert len(found[tenant].by_event["e"]) == 1
    assert (found[other].tenant, dict(found[other].by_event), dict(found[other].projects)) == (other, {}, {})
    assert (found[999].tenant, dict(found[999].projects)) == (999, {})


async def test_keys_are_the_current_one_then_the_one_before_within_its_grace(
    database: Database, tenant: int, cache: DefinitionsCache, clock: HandClock, sealer: Sealer
) -> None:
    async with database.connection() as connection:
        (first,) = (await cache.get(connection, tenant)).project_by_slug["default"].keys
        async with connection.transaction():
            project = await lock_project(connection, tenant, "default")
            key = new_key(sealer, tenant, project.id)
            await set_key(connection, tenant, project.id, key.sealed, key.fingerprint, rotate=True)
            await bump_definitions(connection, tenant)
        current, previous = (await cache.get(connection, tenant)).project_by_slug["default"].keys
        assert previous == first
        assert current != first
        assert current not in repr(await cache.get(connection, tenant))
        clock.seconds += 59.0
        assert len((await cache.get(connection, tenant)).project_by_slug["default"].keys) == 2
        # The database's clock decides; the cache only knows when to ask it again.
        await connection.execute(f"update t_{tenant}.projects set rotated_at = rt.now() - interval '60 seconds'")
        clock.seconds += 1.0
        assert (await cache.get(connection, tenant)).project_by_slug["default"].keys == (current,)


async def test_a_service_that_does_not_sign_opens_no_key(database: Database, tenant: int) -> None:
    async with database.connection() as connection:
        found = await DefinitionsCache(None).get(connection, tenant)
    assert found.project_by_slug["default"].keys == ()


async def test_a_key_that_does_not_open_stops_only_its_own_project(
    database: Database, tenant: int, caplog: pytest.LogCaptureFixture
) -> None:
    cache = DefinitionsCache(Sealer(bytes(32)))
    async with database.connection() as connection:
        found = await cache.get(connection, tenant)
    assert found.project_by_slug["default"].keys == ()
    assert "does not open" in caplog.text
