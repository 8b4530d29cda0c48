"""The pool, where the server goes away under it."""

from __future__ import annotations

import asyncio

import pytest

from services.core.domain.errors import Unavailable
from services.core.store.database import PASSING, Database
from tests.support.waiting import until


async def test_a_session_that_is_lost_as_it_is_given_back_is_the_database_that_is_away(database: Database) -> None:
    with pytest.raises(Unavailable):
        await lose_one(database)
    async with database.connection() as connection:
        assert await connection.fetchval("select 1") == 1


async def lose_one(database: Database) -> None:
    async with database.connection() as connection:
        async with database.connection():
            pass  # this one stays at hand, the other goes back to the pool
        # The loop hears of it after the pool has looked, and before the pool takes the connection.
        connection._transport.abort()


async def test_one_connection_stays_at_hand(database: Database) -> None:
    used = set()
    for _ in range(5):
        async with database.connection() as connection:
            used.add(await connection.fetchval("select pg_backend_pid()"))
    assert len(used) == 1
    assert database.use == (len(used), 1)


async def test_who_waits_for_a_connection_gets_the_one_that_is_given_back(postgres_url: str) -> None:
    pool = Database(postgres_url, name="two", size=2)
    await pool.open()

    async def work() -> int:
        async with pool.connection() as connection:
            return int(await connection.fetchval("select pg_backend_pid() from pg_sleep(0.01)"))

    assert len(set(await asyncio.gather(*(work() for _ in range(20))))) == 2
    assert pool.use == (2, 2)
    await pool.close()


async def test_what_is_lost_while_it_is_at_hand_is_not_used(database: Database) -> None:
    async with database.connection() as connection:
        pid = await connection.fetchval("select pg_backend_pid()")
    async with database.connection() as first, database.connection() as second:
        assert await first.fetchval("select pg_backend_pid()") == pid
        assert await second.fetchval("select pg_terminate_backend($1, 10000)", pid)
        with pytest.raises(PASSING):
            await first.fetchval("select 1")
    for _ in range(3):
        async with database.connection() as connection:
            assert await connection.fetchval("select pg_backend_pid()") != pid


async def test_one_that_dies_at_hand_is_replaced(database: Database) -> None:
    async with database.connection() as other:
        async with database.connection() as connection:
            pid = await connection.fetchval("select pg_backend_pid()")
        assert await other.fetchval("select pg_terminate_backend($1, 10000)", pid)
        await until(lambda: _is_none_at_hand(database))
        async with database.connection() as connection:
            assert await connection.fetchval("select pg_backend_pid()") != pid


async def _is_none_at_hand(database: Database) -> bool:
    assert database.use is not None
    return database.use[1] == 0


@pytest.mark.parametrize("passes", range(4))
async def test_one_that_is_lost_while_the_pool_is_closed_is_no_fault(postgres_url: str, passes: int) -> None:
    pool = Database(postgres_url, name="closing", size=2)
    await pool.open()
    async with pool.connection() as connection:
        transport = connection._transport
    transport.abort()  # the loop hears of it within the next passes
    for _ in range(passes):
        await asyncio.sleep(0)
    await pool.close()
    assert pool.use is None


@pytest.mark.parametrize("passes", range(4))
async def test_one_that_is_lost_as_it_is_taken_is_another_ones_turn(database: Database, passes: int) -> None:
    async with database.connection() as connection:
        transport = connection._transport
    transport.abort()
    for _ in range(passes):
        await asyncio.sleep(0)
    for _ in range(10):
        try:
            async with database.connection() as connection:
                assert await connection.fetchval("select 1") == 1
                return
        except Unavailable:  # it was taken before the loop had heard of it
            continue
    pytest.fail("no connection could be had")


async def test_an_open_transaction_is_not_left_to_the_next_one(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("begin")
    for _ in range(2):
        async with database.connection() as connection:
            assert not connection.is_in_transaction()


async def test_a_connection_in_use_while_the_pool_is_closed_is_closed_with_it(postgres_url: str) -> None:
    pool = Database(postgres_url, name="closing", size=2)
    await pool.open()
    async with pool.connection() as connection:
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        assert await connection.fetchval("select 1") == 1
    await asyncio.wait_for(closing, 30)
    assert pool.use is None
    with pytest.raises(Unavailable):
        async with pool.connection():
            pass
