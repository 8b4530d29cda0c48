"""The commit pipeline against a real Postgres: commits whose answer is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from services.core.store.pipeline import Pipeline
from tests.support.builders import ending, item
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url
from tests.support.live_rows import LiveRows, rows
from tests.support.pipeline import held, owner, pipeline, read, steps, used
from tests.support.waiting import until

__all__ = ["database", "owner", "pipeline", "postgres_url", "rows"]

MINE = "application_name = 'runr-executor-pipeline' and datname = current_database()"


async def backend(rows: LiveRows) -> int:
    """The server process of the pipeline."""
    pid = f"select pid from pg_stat_activity where {MINE}"
    found: int | None = None

    async def there() -> bool:
        nonlocal found
        found = await rows.value(pid)
        return found is not None

    await until(there)
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def stalled(rows: LiveRows) -> AsyncIterator[asyncpg.Connection]:
    """Commits that store a step stop in their middle, holding their runs' rows, until this is left."""
    async with rows.database.transaction() as connection:
        await connection.execute("lock table rt.steps in share mode")
        yield connection


async def blocked(rows: LiveRows) -> None:
    """Wait until a commit has stopped."""
    held_up = (
        f"select count(*) from pg_locks where not granted and pid in (select pid from pg_stat_activity where {MINE})"
    )

    async def stopped() -> bool:
        return bool(await rows.value(held_up))

    await until(stopped)


async def test_c4_a_commit_that_died_with_its_connection_is_sent_again(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live = await held(rows, owner)
    async with stalled(rows):
        waiting = asyncio.create_task(pipeline.commit(item(live, "a", uses=1)))
        await blocked(rows)
        await rows.value("select pg_terminate_backend($1)", await backend(rows))
    assert (await waiting).st == "r"
    after = await read(rows, live["id"])
    assert (after["rev"], after["steps"]) == (1, 1)
    assert await used(rows) == 1


@pytest.mark.parametrize("last", [False, True], ids=["step", "end"])
async def test_c4_a_commit_that_the_server_finished_after_the_connection_was_lost_is_done_once(
    rows: LiveRows, owner: int, last: bool
) -> None:
    live = await held(rows, owner)
    async with cuttable(rows.database.dsn) as (dsn, cut):
        pipeline = Pipeline(dsn, owner=owner)
        serves = asyncio.create_task(pipeline.run())
        each = ending(live, "a", uses=1) if last else item(live, "a", uses=1)
        async with stalled(rows):
            waiting = asyncio.create_task(pipeline.commit(each))
            await blocked(rows)
            first = await backend(rows)
            cut()
            # It looks the commit up over a new connection, finds nothing, and sends it again, to a busy row.
            pids = f"select count(*) from pg_stat_activity where {MINE} and pid <> $1"

            async def returned() -> bool:
                return bool(await rows.value(pids, first))

            await until(returned)
        done = await waiting
        serves.cancel()
        await asyncio.wait({serves})
    assert done.mail == 0
    if last:
        assert await rows.value("select rev from rt.ends where run = $1", live["id"]) == live["rev"] + 1
    else:
        assert (await read(rows, live["id"]))["rev"] == live["rev"] + 1
    assert await steps(rows, live["id"]) == ["a"]
    assert await used(rows) == 1


async def test_c4_under_load_every_acknowledged_step_is_stored_once_whatever_dies(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    runs = await rows.start(24)
    await rows.claim(owner, runs)
    acknowledged: dict[UUID, list[str]] = {run: [] for run in runs}
    dice = random.Random(7)
    moved = asyncio.Event()

    async def drive(run: UUID) -> None:
        live = dict(await read(rows, run))
        for number in range(25):
            sid = f"s{number}"
            await pipeline.commit(item(live, sid, uses=1))
            acknowledged[run].append(sid)
            moved.set()
            live["rev"] += 1
            live["steps"] += 1

    async def kill() -> None:
        kills = f"select count(pg_terminate_backend(pid)) from pg_stat_activity where {MINE}"
        while True:
            # On a machine that is slower than the kills, nothing would ever come through.
            await moved.wait()
            moved.clear()
            await asyncio.sleep(dice.uniform(0.0, 0.12))
            await rows.value(kills)

    killing = asyncio.create_task(kill())
    async with asyncio.timeout(60):
        await asyncio.gather(*map(drive, runs))
    killing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await killing
    for run in runs:
        live = await read(rows, run)
        assert await steps(rows, run) == acknowledged[run]
        assert (live["rev"], live["steps"]) == (25, 25)
    assert await used(rows) == 24 * 25


async def test_a_connection_is_not_left_behind_where_serving_ends_before_it_is_used(
    rows: LiveRows, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: asyncio.Future[asyncpg.Connection] = asyncio.get_running_loop().create_future()

    async def ask(connection: asyncpg.Connection) -> str:
        asked.set_result(connection)
        return str(await connection.fetchval("select pg_sleep(60)"))

    monkeypatch.setattr("services.core.store.pipeline.server_identity", ask)
    pipeline = Pipeline(rows.database.dsn, owner=owner)
    serves = asyncio.create_task(pipeline.run())
    waiting = asyncio.create_task(pipeline.commit(item(await held(rows, owner), "a")))
    connection = await asked
    for task in (serves, waiting):
        task.cancel()
    await asyncio.wait({serves, waiting})
    assert connection.is_closed()
