"""The commit pipeline against a real Postgres: who may not commit any more, and who hears of what was delivered."""

from __future__ import annotations

import asyncio

import pytest

from services.core.store.commit_item import AttemptRow, Committed, Fenced, MarkRow
from services.core.store.pipeline import Pipeline
from services.core.store.queries import queries
from tests.support.builders import ending, item, step_row
from tests.support.engine import database, postgres_url
from tests.support.live_rows import LiveRows, rows
from tests.support.pipeline import everything, held, owner, pipeline, read, steps

__all__ = ["database", "owner", "pipeline", "postgres_url", "rows"]


@pytest.mark.parametrize(
    "moved",
    [
        {"epoch": 1},
        {"epoch": -1},
        {"rev": 1},
        {"rev": -1},
    ],
    ids=["older epoch", "epoch from the future", "older rev", "rev from the future"],
)
async def test_c3_a_fence_that_differs_writes_nothing(
    rows: LiveRows, owner: int, pipeline: Pipeline, moved: dict[str, int]
) -> None:
    live = await held(rows, owner)
    await rows.rows("update rt.live set rev = 5, epoch = 5 where id = $1 returning id", live["id"])
    live = await read(rows, live["id"])
    before = await everything(rows, live["id"])
    stale = {key: live[key] - by for key, by in moved.items()}
    wait = rows.wait("s", run=live["id"], delay_ms=1)
    attempt = AttemptRow(live["id"], rows.tenant, 0, None, 1, "{}", None, 0)
    mark = MarkRow(live["id"], rows.tenant, "send_event", "{}")
    for each in (
        item(live, "a", uses=1, attempt_rows=(attempt,), mark_rows=(mark,), **stale),
        item(live, "a", keep=False, st="s", wait_rows=(wait,), **stale),
        ending(live, "a", **stale),
    ):
        with pytest.raises(Fenced):
            await pipeline.commit(each)
    assert await everything(rows, live["id"]) == before


async def test_another_owner_is_fenced_and_writes_nothing(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live = await held(rows, await rows.owner())
    before = await everything(rows, live["id"])
    for each in (item(live, "a"), ending(live, "a")):
        with pytest.raises(Fenced):
            await pipeline.commit(each)
    assert await everything(rows, live["id"]) == before


async def test_c1_a_cancelled_run_takes_no_late_commit(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live = await held(rows, owner)
    await pipeline.commit(item(live, "a"))
    live = await read(rows, live["id"])
    async with rows.database.connection() as connection:
        await connection.execute(queries("engine")["finish"], [live["id"]], ["cancelled"], [None], [None])
    with pytest.raises(Fenced):
        await pipeline.commit(item(live, "b"))
    assert await steps(rows, live["id"]) == ["a"], "what committed first stays"
    end = await rows.row("select epoch, rev from rt.ends where run = $1", live["id"])
    assert end is not None
    assert tuple(end) == (live["epoch"] + 1, live["rev"])


async def test_c2_a_retried_run_is_not_mistaken_for_its_earlier_life(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live = await held(rows, owner)
    async with rows.database.connection() as connection:
        await connection.execute(queries("engine")["finish"], [live["id"]], ["cancelled"], [None], [None])
        assert (
            await connection.fetchval(
                "select rt.retry_v1($1, $2, 4::smallint, 60000, 0, null, null)", rows.tenant, live["id"]
            )
            is not None
        )
    assert await rows.claim(owner, [live["id"]])
    again = await read(rows, live["id"])
    assert again["epoch"] > live["epoch"] + 1
    with pytest.raises(Fenced):
        await pipeline.commit(item(live, "late"))
    await pipeline.commit(item(again, "a"))
    assert await steps(rows, live["id"]) == ["a"]


async def test_case_20_of_two_attempts_the_late_one_is_discarded(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    first = await held(rows, owner)
    async with rows.database.connection() as connection:
        await connection.execute(queries("executor")["let_go"], owner, [first["id"]], [first["epoch"]], True)
    assert await rows.claim(owner, [first["id"]])
    second = await read(rows, first["id"])
    await pipeline.commit(item(second, step_rows=(step_row(second, "s", output='"attempt 1"'),), steps=1))
    with pytest.raises(Fenced):
        await pipeline.commit(item(first, step_rows=(step_row(first, "s", output='"attempt 0"'),), steps=1))
    stored = await rows.rows("select output from rt.steps where run = $1", first["id"])
    assert [row["output"] for row in stored] == ['"attempt 1"']


async def test_c5_who_lets_go_over_an_unseen_delivery_leaves_the_run_ready(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live = await held(rows, owner)
    await rows.rows("update rt.live set mail = mail + 1 where id = $1 returning id", live["id"])
    wait = rows.wait("s", run=live["id"], delay_ms=86_400_000)
    done = await pipeline.commit(item(live, keep=False, st="s", wait_rows=(wait,), steps=1))
    assert done == Committed(1, "q", None)
    after = await read(rows, live["id"])
    assert (after["st"], after["owner"], after["qk"] is not None) == ("q", None, True)


async def test_c5_a_kept_lease_hears_of_a_delivery_and_keeps_its_fences(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live = await held(rows, owner)
    await rows.rows("update rt.live set mail = 3 where id = $1 returning id", live["id"])
    assert await pipeline.commit(item(live, "a")) == Committed(3, "r", None)
    after = await read(rows, live["id"])
    assert (after["owner"], after["epoch"]) == (owner, live["epoch"])


async def test_c11_a_row_that_was_busy_with_its_end_is_fenced(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live, other = await held(rows, owner), await held(rows, owner)
    async with rows.database.transaction() as connection:
        await connection.execute(queries("engine")["lock_runs"], rows.tenant, [live["id"]])
        waiting = asyncio.create_task(pipeline.commit(item(live, "a")))
        await pipeline.commit(item(other, "a"))
        await connection.execute(queries("engine")["finish"], [live["id"]], ["cancelled"], [None], [None])
    with pytest.raises(Fenced):
        await waiting
    assert await steps(rows, live["id"]) == []
