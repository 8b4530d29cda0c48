"""A run that is held goes on with what holds now: keys, endpoint and definitions are not those of its claim."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import pytest

from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache, TenantDefinitions
from services.core.engine.signing_keys import new_key
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.projects import lock_project, set_endpoint, set_key
from services.core.store.workflows import bump_definitions
from services.executor.current_definitions import CurrentDefinitions
from services.executor.function_client import RawAnswer, RequestKind, Target
from services.executor.incarnation import Incarnation
from tests.support.cuttable import cuttable
from tests.support.engine import HandClock, ScriptedFunctions, database, living, make_incarnation, postgres_url
from tests.support.fake_function import Answer, Op, Request, Script, completed
from tests.support.hand import Hand
from tests.support.tenancy import ENCRYPTION_KEY
from tests.support.waiting import until

__all__ = ["database", "postgres_url"]

SECRET = Sealer(ENCRYPTION_KEY)


class Targets(ScriptedFunctions):
    """Functions in memory that remember where they were called, and signed with which keys."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        super().__init__(scripts)
        self.targets: list[Target] = []

    async def call(
        self, target: Target, kind: RequestKind, request_text: str, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        self.targets.append(target)
        return await super().call(target, kind, request_text, headers, timeout_s)


class CountingCache(DefinitionsCache):
    """Counts how often it asks the database."""

    reads = 0

    async def get(self, connection: asyncpg.Connection, tenant: int) -> TenantDefinitions:
        self.reads += 1
        return await super().get(connection, tenant)

    async def get_many(self, connection: asyncpg.Connection, tenants: Sequence[int]) -> Mapping[int, TenantDefinitions]:
        self.reads += 1
        return await super().get_many(connection, tenants)


class Chain:
    """A workflow that makes one step after another until the test has seen what it wants.

    `before` is called with the number of each step, when its body is executed.
    """

    def __init__(self, before: Mapping[int, Any] | None = None, *, pause_s: float = 0.0) -> None:
        self.over = False
        self._before = before or {}
        self._pause_s = pause_s

    async def __call__(self, request: Request) -> Answer:
        number = len(request["steps"])
        if number in self._before:
            await self._before[number]()
        await asyncio.sleep(self._pause_s)
        return {"op": "run_completed", "output": None} if self.over else completed(f"s{number}")


def new_url() -> str:
    return f"https://example.com/{secrets.token_hex(8)}"


async def move(database: Database, tenant: int, url: str = "https://example.com/moved") -> None:
    """Rotate the key of the project and set another endpoint."""
    async with database.transaction() as connection:
        project = await lock_project(connection, tenant, "default")
        key = new_key(SECRET, tenant, project.id)
        await set_key(connection, tenant, project.id, key.sealed, key.fingerprint, rotate=True)
        await set_endpoint(connection, tenant, project.id, url)
        await bump_definitions(connection, tenant)


async def epochs(hand: Hand) -> int:
    """How often the only run was claimed."""
    async with hand.database.connection() as connection:
        return int(await connection.fetchval("select epoch from rt.live"))


@pytest.fixture
def cache() -> CountingCache:
    return CountingCache(SECRET)


def executor(hand: Hand, functions: Targets, cache: DefinitionsCache) -> Incarnation:
    return make_incarnation(hand.database, functions, definitions=cache)


async def test_a_hint_reaches_a_held_run_before_its_next_invocation(hand: Hand, cache: CountingCache) -> None:
    url = new_url()

    async def rotate() -> None:
        await move(hand.database, hand.tenant, url)
        cache.doubt(hand.tenant)

    chain = Chain({2: rotate})
    functions = Targets({"chain": chain})
    await hand.declare({"name": "chain"})
    await hand.start("chain")
    async with living(executor(hand, functions, cache)):
        await functions.until(lambda: len(functions.requests) >= 6)
        claims = await epochs(hand)
        chain.over = True
        before, after = functions.targets[:3], functions.targets[3:]
    assert url not in {target.url for target in before}
    assert {url} == {target.url for target in after}
    assert all(target.keys[1:] == before[0].keys and len(target.keys) == 2 for target in after)
    assert claims == 1, "the lease was hot all the time"


async def test_a_change_without_a_hint_is_seen_within_about_a_second(hand: Hand, cache: CountingCache) -> None:
    url = new_url()
    chain = Chain({5: lambda: move(hand.database, hand.tenant, url)}, pause_s=0.01)
    functions = Targets({"chain": chain})
    await hand.declare({"name": "chain"})
    await hand.start("chain")
    async with living(executor(hand, functions, cache)):
        await functions.until(lambda: len(functions.requests) > 6)
        began = asyncio.get_running_loop().time()
        await functions.until(lambda: functions.targets[-1].url == url)
        took_s = asyncio.get_running_loop().time() - began
        claims = await epochs(hand)
        chain.over = True
    assert took_s < 3.0
    assert claims == 1
    assert cache.reads < 10, "steps do not read"


async def test_what_a_held_run_invokes_must_be_there_now(hand: Hand, cache: CountingCache) -> None:
    declarer = Declarer(hand.database, cache.doubt)

    async def pause() -> None:
        await declarer.set_active(hand.tenant, "default", "child", False)

    async def archive() -> None:
        await hand.declare({"name": "parent"}, {"name": "late"})
        cache.doubt(hand.tenant)

    faults = iter([(pause, "child"), (archive, "child"), (archive, "late")])

    async def parent(request: Request) -> Answer:
        number = len(request["steps"])
        if number == 3:
            return {"op": "run_completed", "output": [each.get("error") for each in request["steps"].values()]}
        change, workflow = next(faults)
        await change()  # while the invocation that names the workflow is under way
        op: Op = {"op": "invoke", "id": f"i{number}", "workflow": workflow}
        return op

    await hand.declare({"name": "parent"}, {"name": "child"})
    run = await hand.start("parent")
    functions = Targets({"parent": parent, "late": lambda _: {"op": "run_completed", "output": 1}})
    async with living(executor(hand, functions, cache)), hand.database.connection() as connection:

        async def over() -> bool:
            return bool(await connection.fetchval("select count(*) = 1 from rt.ends where run = $1", run))

        await until(over)
        output = json.loads(await connection.fetchval("select output from rt.ends where run = $1", run))
    assert [None if error is None else error["name"] for error in output] == ["InvokeError", "InvokeError", None]
    assert ["paused" in str(output[0]), "archived" in str(output[1])] == [True, True]


async def test_a_paused_and_an_archived_workflow_go_on_where_they_run(hand: Hand, cache: CountingCache) -> None:
    declarer = Declarer(hand.database, cache.doubt)

    async def pause() -> None:
        await declarer.set_active(hand.tenant, "default", "chain", False)

    async def archive() -> None:
        await hand.declare({"name": "other"})
        cache.doubt(hand.tenant)

    chain = Chain({1: pause, 3: archive})
    functions = Targets({"chain": chain})
    await hand.declare({"name": "chain"})
    await hand.start("chain")
    async with living(executor(hand, functions, cache)):
        await functions.until(lambda: len(functions.requests) >= 6)
        claims = await epochs(hand)
        chain.over = True
    assert claims == 1


async def test_a_deleted_workflow_is_not_called_again(hand: Hand, cache: CountingCache) -> None:
    async def gone() -> None:
        async with hand.database.transaction() as connection:
            await connection.execute("delete from rt.workflows where tenant = $1", hand.tenant)
            await bump_definitions(connection, hand.tenant)
        cache.doubt(hand.tenant)

    chain = Chain({1: gone})
    functions = Targets({"chain": chain})
    await hand.declare({"name": "chain"})
    await hand.start("chain")
    incarnation = executor(hand, functions, cache)
    async with living(incarnation):
        await functions.until(lambda: len(functions.requests) == 2)
        await until(lambda: _nothing_held(incarnation))
    assert len(functions.requests) == 2


async def _nothing_held(incarnation: Incarnation) -> bool:
    return not incarnation.held


class TestAge:
    """When what is known is good enough, by a clock that the test turns."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def cache(self, clock: HandClock) -> CountingCache:
        return CountingCache(SECRET, clock=clock, key_grace_ms=60_000)

    async def test_what_was_confirmed_is_recent_for_that_long(
        self, database: Database, tenant: int, cache: CountingCache, clock: HandClock
    ) -> None:
        assert cache.recent(tenant, 1.0) is None
        async with database.connection() as connection:
            found = await cache.get(connection, tenant)
            clock.seconds += 1.0
            assert cache.recent(tenant, 1.0) is found
            clock.seconds += 0.1
            assert cache.recent(tenant, 1.0) is None
            assert (await cache.get_many(connection, [tenant]))[tenant] is found
        assert cache.recent(tenant, 1.0) is found

    async def test_a_doubt_holds_until_somebody_has_asked_after_it(
        self, database: Database, tenant: int, cache: CountingCache, clock: HandClock
    ) -> None:
        async with database.connection() as connection:
            found = await cache.get(connection, tenant)
            clock.seconds += 0.1
            cache.doubt(tenant)
            assert cache.recent(tenant, 1.0) is None
            clock.seconds += 0.1
            await cache.get(connection, tenant)
        assert cache.recent(tenant, 1.0) is found

    async def test_a_read_that_began_before_the_doubt_does_not_end_it(
        self, database: Database, tenant: int, cache: CountingCache, clock: HandClock
    ) -> None:
        async with database.transaction() as blocking:
            await blocking.execute("lock table rt.defs_version")

            async def read() -> None:
                async with database.connection() as connection:
                    await cache.get(connection, tenant)

            reading = asyncio.create_task(read())
            await until(lambda: _blocked(database))
            clock.seconds += 0.1
            cache.doubt(tenant)
        await reading
        assert cache.recent(tenant, 1.0) is None

    async def test_the_one_who_asked_first_does_not_replace_what_was_learned_later(
        self, database: Database, tenant: int, cache: CountingCache, clock: HandClock
    ) -> None:
        async with database.connection() as connection:
            before = await cache.get(connection, tenant)
            await move(database, tenant)
            clock.seconds += 0.1
            after = await cache.get(connection, tenant)
            clock.seconds -= 0.05  # somebody who asked in between, and was served late with what was there before
            cache._keep(tenant, await cache._load(connection, tenant, before.version, clock.monotonic(), None))
        assert cache.recent(tenant, 1.0) is after

    async def test_a_key_that_no_longer_signs_along_is_not_recent(
        self, database: Database, tenant: int, cache: CountingCache, clock: HandClock
    ) -> None:
        await move(database, tenant)
        async with database.connection() as connection:
            await cache.get(connection, tenant)
        assert cache.recent(tenant, 100.0) is not None
        clock.seconds += 61.0
        assert cache.recent(tenant, 100.0) is None


async def _blocked(database: Database) -> bool:
    async with database.connection() as connection:
        return bool(await connection.fetchval("select count(*) from pg_locks where not granted"))


async def test_many_held_runs_are_kept_fresh_by_one_read(database: Database, tenant: int, cache: CountingCache) -> None:
    current = CurrentDefinitions(database, cache, max_age_s=30.0, look_s=0.05)
    keeping = asyncio.create_task(current.run())
    try:
        await asyncio.gather(*(current._current(tenant) for _ in range(50)))
        assert cache.reads == 1
        url = new_url()
        await move(database, tenant, url)

        async def seen() -> bool:
            return (await current._current(tenant)).project_by_slug["default"].endpoint_url == url

        await until(seen)
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


async def test_while_the_database_is_away_a_held_run_waits_for_it(database: Database, tenant: int) -> None:
    async with cuttable(database.dsn) as (dsn, cut):
        pool = Database(dsn, name="test", size=2)
        await pool.open()
        cache = CountingCache(SECRET)
        current = CurrentDefinitions(pool, cache)
        async with database.transaction() as blocking:
            await blocking.execute("lock table rt.defs_version")
            asking = asyncio.create_task(current._current(tenant))
            await until(lambda: _blocked(database))
            cut()
        found = await asyncio.wait_for(asking, 10)
        assert found.project_by_slug["default"].tenant == tenant
        assert cache.reads >= 2
        await pool.close()
