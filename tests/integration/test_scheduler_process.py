"""Schedulers as processes: they share, one is killed or frozen, the other goes on; the database goes and comes back."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from services.core.bus.jetstream import Bus
from services.core.domain.run import Status
from services.core.store.database import Database
from services.embedded.stack import EmbeddedStack
from tests.support.child import Child
from tests.support.homes import temporary_home
from tests.support.live_rows import LiveRows
from tests.support.tenancy import BOOTSTRAP_TOKEN, ENCRYPTION_KEY
from tests.support.waiting import until

HEARTBEAT_S = 0.5


@pytest.fixture
def new_scheduler(postgres_url: str, nats_url: str, nats_prefix: str, tmp_path: Path) -> Iterator[Callable[[], Child]]:
    with temporary_home("scheduler") as home:

        def make() -> Child:
            name = f"scheduler-{secrets.token_hex(2)}"
            health, grpc = home.port(f"{name}-health"), home.port(f"{name}-grpc")
            environ = {
                "PATH": os.environ["PATH"],
                "DATABASE_URL": postgres_url,
                "NATS_URL": nats_url,
                "RUNR_NATS_PREFIX": nats_prefix,
                "RUNR_ENCRYPTION_KEY": base64.b64encode(ENCRYPTION_KEY).decode(),
                "RUNR_BOOTSTRAP_TOKEN": BOOTSTRAP_TOKEN,
                "RUNR_SCHEDULER_ADDR": f"127.0.0.1:{grpc}",
                "WORKFLOWS_LEASE_TTL": "6s",
                "WORKFLOWS_HEARTBEAT": f"{HEARTBEAT_S}s",
            }
            return Child(name, "scheduler", environ=environ, health=f"127.0.0.1:{health}", log=tmp_path / name)

        yield make


@pytest.fixture
async def pair(new_scheduler: Callable[[], Child]) -> AsyncIterator[tuple[Child, Child]]:
    async with AsyncExitStack() as stack:
        children = (new_scheduler(), new_scheduler())
        for child in children:
            stack.push_async_callback(child.stop)
            child.start()
        for child in children:
            await child.ready()
        yield children


async def shares(rows: LiveRows) -> list[int]:
    """How many partitions each living scheduler has."""
    found = await rows.rows(
        "select count(p.n) from rt.owner o left join rt.part p on p.owner = o.id "
        "where o.kind = 'scheduler' and not o.dead group by o.id"
    )
    return sorted(row["count"] for row in found)


async def test_the_share_and_the_timers_of_a_killed_scheduler_go_to_the_other(
    rows: LiveRows, pair: tuple[Child, Child]
) -> None:
    async def even() -> bool:
        return await shares(rows) == [32, 32]

    async def one_has_all() -> bool:
        return await shares(rows) == [64]

    await until(even)
    runs = [await rows.asleep(300 + place * 20) for place in range(60)]
    pair[0].kill()
    began = time.monotonic()
    await until(one_has_all)
    assert time.monotonic() - began < 10
    await until(lambda: all_queued(rows, runs))
    await exactly_once(rows, runs)


async def test_a_drained_scheduler_leaves_nothing_behind(rows: LiveRows, pair: tuple[Child, Child]) -> None:
    pair[0].kill(signal.SIGTERM)
    assert await pair[0].ended() == 0
    assert await rows.value("select count(*) from rt.owner where kind = 'scheduler'") == 1

    async def one_has_all() -> bool:
        return await shares(rows) == [64]

    await until(one_has_all)


async def test_two_schedulers_over_a_database_that_goes_and_comes_back(
    rows: LiveRows, pair: tuple[Child, Child], postgres_stack: EmbeddedStack, postgres_url: str, tenant: int
) -> None:
    executor = await rows.owner()
    held = await rows.held(executor)
    runs = [await rows.asleep(500 + place * 10) for place in range(30)]
    postgres_stack.stop("postgres")
    try:
        await until(lambda: not_ready(pair[0]))
    finally:
        postgres_stack.start("postgres")
    again = Database(postgres_url, name="again", size=2)
    await again.open()
    try:
        found = LiveRows(again, tenant)
        async with living(again, executor):
            await until(lambda: all_queued(found, runs))
            await exactly_once(found, runs)
            # Its holder was silent without fault: nobody is declared dead because the database was away.
            assert await found.status(held) is Status.RUNNING
        assert pair[0].runs
        assert pair[1].runs
        for child in pair:
            await child.ready()
    finally:
        await again.close()


async def test_runs_that_wait_are_hinted_over_nats(
    rows: LiveRows, pair: tuple[Child, Child], nats_url: str, nats_prefix: str
) -> None:
    bus = Bus(nats_url, prefix=nats_prefix)
    await bus.start()
    try:
        await rows.start_one()  # nobody hints at it

        async def hinted() -> bool:
            return bool(await bus.pending())

        await until(hinted)
    finally:
        await bus.stop()


@asynccontextmanager
async def living(database: Database, owner: int) -> AsyncIterator[None]:
    """An owner that is back: its session's lock, and a beat every heartbeat."""

    async def beat() -> None:
        async with database.connection() as connection:
            await connection.fetchval("select pg_advisory_lock($1)", owner)
            while await connection.fetchval("select rt.beat_v1($1)", owner):
                await asyncio.sleep(HEARTBEAT_S)

    beating = asyncio.create_task(beat())
    try:
        yield
        assert not beating.done(), "it was declared dead"
    finally:
        beating.cancel()
        await asyncio.wait({beating})


async def not_ready(child: Child) -> bool:
    try:
        await child.ready(timeout_s=0.01)
    except AssertionError:
        return True
    return False


async def all_queued(rows: LiveRows, runs: list[uuid.UUID]) -> bool:
    count = await rows.value("select count(*) from rt.live where id = any ($1) and st = 'q'", runs)
    return bool(count == len(runs))


async def exactly_once(rows: LiveRows, runs: list[uuid.UUID]) -> None:
    """Each sleep ended once."""
    assert await rows.value("select count(*) from rt.live where id = any ($1) and mail = 1", runs) == len(runs)
    assert await rows.value("select count(*) from rt.steps where run = any ($1)", runs) == len(runs)
