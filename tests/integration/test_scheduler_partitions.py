"""Schedulers share the partitions evenly, take over from the dead, and do without when in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from services.core.runtime.clock import SystemClock
from services.core.store.database import Database
from services.scheduler.partitions import EVERY_PARTITION, Partitions
from tests.support.cuttable import cuttable
from tests.support.live_rows import LiveRows
from tests.support.turned_clock import TurnedClock
from tests.support.waiting import until

SESSIONS = "pg_stat_activity where application_name = 'runr-scheduler-owner' and datname = current_database()"


def new_partitions(database: Database, clock: SystemClock | None = None, beat_s: float = 3.0) -> Partitions:
    return Partitions(database.dsn, node="test", clock=clock or SystemClock(), beat_s=beat_s)


@asynccontextmanager
async def running(partitions: Partitions) -> AsyncIterator[Partitions]:
    task = asyncio.create_task(partitions.run())
    try:
        yield partitions
    finally:
        task.cancel()
        await asyncio.wait({task})
        await partitions.stop()


async def owned(rows: LiveRows, partitions: Partitions) -> set[int]:
    found = await rows.rows("select n from rt.part where owner = $1", partitions.owner)
    return {row["n"] for row in found}


async def test_a_lone_scheduler_has_them_all(rows: LiveRows) -> None:
    one = new_partitions(rows.database)
    assert one.mine() == EVERY_PARTITION
    await one.beat()
    assert set(one.mine()) == set(EVERY_PARTITION) == await owned(rows, one)
    assert one.generation == 1
    await one.beat()
    assert one.generation == 1
    await one.stop()


async def test_with_more_schedulers_than_partitions_nobody_takes_two(rows: LiveRows) -> None:
    for _ in range(70):
        await rows.owner(kind="scheduler")
    one = new_partitions(rows.database)
    await one.beat()
    assert len(await owned(rows, one)) <= 1
    await one.stop()


@pytest.mark.parametrize("count", [2, 3, 7])
async def test_they_are_shared_evenly_when_others_join(rows: LiveRows, count: int) -> None:
    schedulers = [new_partitions(rows.database) for _ in range(count)]
    for _ in range(3):  # who has too many gives back, then who has too few takes
        for each in schedulers:
            await each.beat()
    shares = [set(each.mine()) for each in schedulers]
    assert set().union(*shares) == set(EVERY_PARTITION)
    assert sum(map(len, shares)) == 64
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for each in schedulers:
        await each.stop()


async def test_who_leaves_hands_everything_back(rows: LiveRows) -> None:
    one, two = new_partitions(rows.database), new_partitions(rows.database)
    for each in (one, two, one, two):
        await each.beat()
    await one.stop()
    await one.stop()
    assert await rows.value("select count(*) from rt.owner where id = $1", one.owner) == 0
    await two.beat()
    assert set(two.mine()) == set(EVERY_PARTITION)
    await two.stop()


async def test_the_dead_ones_share_is_taken_over(rows: LiveRows) -> None:
    dead = await rows.owner(kind="scheduler", silent_ms=20_000)
    buried = await rows.owner(kind="scheduler", dead=True)
    await rows.value("update rt.part set owner = case when n < 32 then $1::bigint else $2::bigint end", dead, buried)
    one = new_partitions(rows.database)
    await one.beat()
    assert set(one.mine()) == set(EVERY_PARTITION)
    await one.stop()


async def test_two_that_join_at_once_come_to_an_even_share(rows: LiveRows) -> None:
    async with AsyncExitStack() as stack:
        pair = [await stack.enter_async_context(running(new_partitions(rows.database, beat_s=0.1))) for _ in range(2)]

        async def even() -> bool:
            return [len(await owned(rows, each)) for each in pair] == [32, 32]

        await until(even)
        assert not await owned(rows, pair[0]) & await owned(rows, pair[1])


async def test_in_doubt_it_looks_after_all(rows: LiveRows) -> None:
    clock = TurnedClock()
    await rows.owner(kind="scheduler")
    one = new_partitions(rows.database, clock)
    await one.beat()
    assert len(one.mine()) == 32
    clock.ahead_s += 10
    assert one.mine() == EVERY_PARTITION
    await one.beat()
    assert len(one.mine()) == 32
    await one.stop()


async def test_declared_dead_it_comes_back_under_a_new_id(rows: LiveRows) -> None:
    one = new_partitions(rows.database)
    await one.beat()
    former, generation = one.owner, one.generation
    await rows.value("update rt.owner set dead = true where id = $1", former)
    await one.beat()
    assert one.owner != former
    assert one.mine() == EVERY_PARTITION
    await one.beat()
    assert await owned(rows, one) == set(EVERY_PARTITION)
    assert one.generation > generation
    await one.stop()


async def test_it_holds_the_lock_that_shows_it_is_alive_also_after_a_lost_connection(rows: LiveRows) -> None:
    async with running(new_partitions(rows.database, beat_s=0.1)) as one:

        async def locked() -> bool:
            got = await rows.value("select pg_try_advisory_xact_lock($1)", one.owner)
            known = await rows.value("select count(*) from rt.owner where id = $1", one.owner)
            return known == 1 and not got

        await until(locked)
        await rows.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name = 'runr-scheduler-owner'"
        )
        await until(locked)
        await until(lambda: has_all(rows, one))


async def test_a_scheduler_that_is_cut_off_beats_again_at_once(rows: LiveRows) -> None:
    # A whole beat of ten seconds without its lock: the others would take its share long before.
    async with AsyncExitStack() as stack:
        dsn, cut = await stack.enter_async_context(cuttable(rows.database.dsn))
        one = Partitions(dsn, node="test", clock=SystemClock(), beat_s=3_600.0)
        await stack.enter_async_context(running(one))
        await until(lambda: has_all(rows, one))
        former = one.owner
        session = await rows.value(f"select pid from {SESSIONS}")
        before = await rows.value("select beat_at from rt.owner where id = $1", former)
        cut()  # the server does not notice: its session, and the lock, live on

        async def beaten_again() -> bool:
            return bool(await rows.value("select beat_at > $2 from rt.owner where id = $1", former, before))

        await until(beaten_again)
        await rows.rows("select pg_terminate_backend($1)", session)

        async def locked() -> bool:
            return not await rows.value("select pg_try_advisory_xact_lock($1)", former)

        await until(locked)
        assert one.owner == former
        assert await owned(rows, one) == set(EVERY_PARTITION)


async def has_all(rows: LiveRows, partitions: Partitions) -> bool:
    return await owned(rows, partitions) == set(EVERY_PARTITION)
