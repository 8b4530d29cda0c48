"""The database's clock is set back while it waits until timers are due: nothing is fired early, and no lock is kept."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from services.core.domain.errors import Unavailable
from services.core.domain.run import Status
from services.core.store.database import Database
from services.core.store.queries import queries
from services.executor.wake_limit import wake_limit
from tests.support.engine import database, executing, postgres_url
from tests.support.fake_function import replaying, sleep
from tests.support.hand import ALL_PARTS, Hand
from tests.support.live_rows import LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

_GUARD_S = 20
"""The driver's time limit is longer."""
_TRIES = 20
"""A call may come when its timer is due already, and then waits for nothing."""

_STUCK = """
    create schema stuck;
    create function stuck.pg_sleep(s double precision) returns void language sql as 'select pg_catalog.pg_sleep(3600)'
"""
_ASLEEP = """
    select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')
"""
_CLOCK = """
    create table public.clock (behind interval not null);
    insert into public.clock values ('0');
    create or replace function rt.now() returns timestamptz language sql volatile as
        'select clock_timestamp() - behind from public.clock'
"""


@asynccontextmanager
async def until_the_clock_shows_it(database: Database) -> AsyncIterator[Database]:
    """A pool on the same database, whose server's sleep never ends, as after its clock was set back by an hour."""
    async with database.connection() as connection:
        await connection.execute(_STUCK)
    stuck = Database(f"{database.dsn}?search_path=stuck,pg_catalog", name="stuck", size=6)
    await stuck.open()
    try:
        yield stuck
    finally:
        await stuck.close()
        async with database.connection() as connection:
            await connection.execute("drop schema stuck cascade")


async def is_free(rows: LiveRows, run: uuid.UUID) -> bool:
    """Whether nobody holds the run's row."""
    return await rows.value("select true from rt.live where id = $1 for update skip locked", run) is True


async def test_an_executors_call_that_sleeps_for_too_long_gives_up_and_others_fire_its_timers(
    hand: Hand, rows: LiveRows
) -> None:
    await hand.declare({"name": "sleeper", "retries": 0})

    async def sleeps_or_goes_on(run: uuid.UUID) -> bool:
        stuck = await rows.value(_ASLEEP)
        return bool(stuck) or await rows.status(run) is Status.COMPLETED

    async with (
        until_the_clock_shows_it(hand.database) as stuck,
        executing(stuck, {"sleeper": replaying(sleep("z", "400ms"))}, own_timers=True),
    ):
        for _ in range(_TRIES):
            run = await hand.start("sleeper")
            await until(lambda run=run: sleeps_or_goes_on(run))
            if await rows.status(run) is Status.COMPLETED:
                continue
            await until(lambda run=run: is_free(rows, run), guard_s=_GUARD_S)
            assert await rows.status(run) is Status.SLEEPING
            assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0
            await until(lambda: rows.value("select fired = 1 from rt.fire_v1($1, 500)", ALL_PARTS))
            await until(lambda run=run: rows.value("select count(*) = 1 from rt.ends where run = $1", run))
            return
    pytest.fail("no call has waited")


async def test_one_that_does_something_else_meanwhile_goes_on(database: Database, rows: LiveRows) -> None:
    """It may be about to be committed."""
    async with database.connection() as connection:
        async with database.transaction() as other:
            await other.execute("select pg_advisory_xact_lock(77)")
            with wake_limit(database, connection, 0):
                slow = asyncio.create_task(connection.fetchval("select 7 from pg_advisory_xact_lock(77)"))
                for _ in range(40):
                    await rows.value("select pg_sleep(0.03)")
            assert not slow.done()
        assert await slow == 7


async def test_what_sleeps_no_longer_than_it_may_goes_on(database: Database) -> None:
    async with database.connection() as connection:
        with wake_limit(database, connection, 60_000):
            assert await connection.fetchval("select 7 from pg_sleep(1)") == 7


async def test_who_sleeps_for_longer_fails(database: Database) -> None:
    async def sleep_for_long() -> None:
        async with database.connection() as connection:
            with wake_limit(database, connection, 10):
                await connection.fetchval("select pg_sleep(25)")

    with pytest.raises(Unavailable):
        await asyncio.wait_for(sleep_for_long(), _GUARD_S)


async def test_a_clock_that_is_set_back_before_the_call_sleeps_ends_it(database: Database, rows: LiveRows) -> None:
    run = await rows.asleep(3_000)
    wait = await rows.value("select id from rt.wait where run = $1", run)
    owner = await rows.owner()
    clock = await rows.value("select pg_get_functiondef('rt.now()'::regprocedure)")
    async with database.connection() as connection:
        await connection.execute(_CLOCK)
        try:
            async with database.transaction() as other:
                await other.execute("select from rt.wait where id = $1 for update", wait)
                waking = asyncio.create_task(
                    connection.fetch(queries("executor")["wake"], owner, [wait], 4_000, False, 1, None, None, None)
                )
                await until(lambda: rows.value("select count(*) > 0 from pg_locks where not granted"))
                await rows.rows("update public.clock set behind = '1 hour'")
            with pytest.raises(asyncpg.QueryCanceledError):
                async with asyncio.timeout(_GUARD_S):
                    await waking
        finally:
            await connection.execute(clock)
            await connection.execute("drop table public.clock")
    assert await rows.status(run) is Status.SLEEPING
    assert await rows.value("select count(*) from rt.wait where id = $1", wait) == 1
    assert await is_free(rows, run)
