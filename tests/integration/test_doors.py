"""The doors of the store: wait and finish, and what no row can be."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.core.domain.effect import OpenWait
from services.core.domain.matching import event_value, wait_key
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.doors import finish, open_waits, st, waiting
from tests.support.engine import database, postgres_url
from tests.support.live_rows import DAY_MS, LiveRows, rows

__all__ = ["database", "postgres_url", "rows"]

# ---- wait


@pytest.mark.parametrize("kind", ["s", "e", "b"])
async def test_no_wait_outlives_its_run(rows: LiveRows, kind: str) -> None:
    row = rows.wait(kind, delay_ms=366 * DAY_MS)
    run = await rows.rest("w" if kind == "e" else "s" if kind == "s" else "d", [row], timeout_ms=60_000)
    live = await rows.live(run)
    assert live is not None
    assert await rows.value("select due_at from rt.wait where id = $1", row.id) == live["deadline"]


async def test_a_cancel_on_without_a_window_is_no_timer(rows: LiveRows) -> None:
    run = await rows.start_one()
    await open_waits(rows, rows.wait("x", run=run))
    assert await rows.value("select due_at from rt.wait where run = $1", run) is None


async def test_c21_a_relative_time_counts_from_the_databases_clock(rows: LiveRows) -> None:
    row = rows.wait("s", delay_ms=600_000)
    await rows.rest("s", [row])
    left = await rows.value("select extract(epoch from due_at - rt.now()) from rt.wait where id = $1", row.id)
    assert 590 < left <= 600


async def test_case_35_a_sleep_lasts_as_long_as_it_was_when_it_was_stored(rows: LiveRows) -> None:
    first = rows.wait("s", sid="cool-off", delay_ms=600_000)
    run = await rows.rest("s", [first])
    before = await rows.value("select due_at from rt.wait where id = $1", first.id)
    await open_waits(rows, rows.wait("s", run=run, sid="cool-off", delay_ms=3_600_000))
    waits = await rows.rows("select id, due_at from rt.wait where run = $1", run)
    assert [(row["id"], row["due_at"]) for row in waits] == [(first.id, before)]


async def test_a_wait_for_a_run_that_has_ended_is_not_stored(rows: LiveRows) -> None:
    run = await rows.start_one()
    await finish(rows, run)
    await open_waits(rows, rows.wait("x", run=run))
    assert await rows.value("select count(*) from rt.wait where run = $1", run) == 0


# ---- finish


@pytest.mark.parametrize("status", ["cancelled", "timed_out", "failed", "completed"])
async def test_an_end_leaves_no_lease_wait_timer_or_slot(rows: LiveRows, status: str) -> None:
    waits = [
        rows.wait("s", delay_ms=DAY_MS),
        rows.wait("e", delay_ms=DAY_MS),
        rows.wait("c", delay_ms=DAY_MS, child=uuid4()),
        rows.wait("b", delay_ms=DAY_MS),
    ]
    run = await rows.rest("w", waits)
    await open_waits(rows, rows.wait("x", run=run))
    before = await rows.live(run)
    assert before is not None
    (ended,) = await finish(rows, run, status=status)
    assert ended["run"] == run
    assert await rows.live(run) is None
    assert await rows.value("select count(*) from rt.wait where run = $1", run) == 0
    steps = await rows.rows("select kind::text as kind, status::text as status from rt.steps where run = $1", run)
    assert sorted((row["kind"], row["status"]) for row in steps) == [("e", "x"), ("i", "x"), ("r", "x"), ("s", "x")]
    end = await rows.row("select status, epoch, rev from rt.ends where run = $1", run)
    assert end is not None
    assert tuple(end) == (status, before["epoch"] + 1, before["rev"])
    assert await finish(rows, run) == [], "it ends once"
    assert await rows.value("select count(*) from rt.ends where run = $1", run) == 1


@pytest.mark.parametrize(("status", "cancels"), [("cancelled", True), ("timed_out", True), ("failed", False)])
async def test_c12_an_end_leaves_marks_for_parent_and_children(rows: LiveRows, status: str, cancels: bool) -> None:
    parent = await rows.start_one()
    children = await rows.start(2, parent=parent)
    await finish(rows, parent, status=status)
    marks = await rows.rows("select body from rt.mark where target = $1 and kind = 'cancel_children'", parent)
    named = {UUID(part) for row in marks for part in row["body"].split(",")}
    assert named == (set(children) if cancels else set())


async def test_c10_the_end_of_a_run_is_told_to_all_who_wait_for_it_parent_or_not(rows: LiveRows) -> None:
    child = await rows.start_one()
    first = await rows.rest("w", [rows.wait("c", child=child, delay_ms=DAY_MS)])
    second = await rows.rest("w", [rows.wait("c", child=child, delay_ms=DAY_MS)])
    owner = await rows.owner()
    await rows.claim(owner, [child])
    await rows.end(owner, child, "completed", output='{"n":1}')
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    for run in (first, second):
        assert await st(rows, run) == "q"
        assert await rows.value("select output from rt.steps where run = $1", run) == '{"n":1}'
    assert await rows.value("select count(*) from rt.mark where kind = 'child_end'") == 0


@pytest.mark.parametrize("ended", [False, True], ids=["still active", "ended before"])
async def test_c10_an_invoke_that_leads_to_an_existing_run_gets_its_result(rows: LiveRows, ended: bool) -> None:
    existing = await rows.start_one(idem="s:k", wf=76)
    holder = await rows.owner()
    await rows.claim(holder, [existing])
    if ended:
        await rows.end(holder, existing, "completed", output='"known"')
    owner = await rows.owner()
    parent = await rows.held(owner)
    child = uuid4()
    answer = await rows.commit(
        owner,
        parent,
        st="w",
        steps=1,
        wait_rows=(rows.wait("c", run=parent, child=child, delay_ms=DAY_MS),),
        start_rows=(rows.start_row(id=child, parent=parent, idem="s:k", wf=76, source="invoke"),),
    )
    assert answer["result"] == "d"
    assert await rows.live(child) is None, "no second run"
    assert await rows.value("select child from rt.wait where run = $1", parent) == existing
    if not ended:
        await rows.rows("select * from rt.apply_marks_v1(0, 100)")
        assert await st(rows, parent) == "w"
        await rows.end(holder, existing, "completed", output='"known"')
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    assert await st(rows, parent) == "q"
    assert await rows.value("select output from rt.steps where run = $1 and kind = 'i'", parent) == '"known"'


async def test_c10_an_invoke_that_meets_the_end_of_the_run_it_leads_to_is_not_forgotten(rows: LiveRows) -> None:
    existing = await rows.start_one(idem="s:k", wf=77)
    owner = await rows.owner()
    parent, child = await rows.held(owner), uuid4()
    async with rows.database.transaction() as connection:
        await connection.execute(queries("engine")["lock_runs"], rows.tenant, [existing])
        await connection.execute(queries("engine")["finish"], [existing], ["cancelled"], [None], [None])
        await rows.commit(
            owner,
            parent,
            st="w",
            steps=1,
            wait_rows=(rows.wait("c", run=parent, child=child, delay_ms=DAY_MS),),
            start_rows=(rows.start_row(id=child, parent=parent, idem="s:k", wf=77, source="invoke"),),
        )
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    assert await st(rows, parent) == "q"
    assert "InvokeError" in await rows.value("select error from rt.steps where run = $1 and kind = 'i'", parent)


# ---- the constraints


@pytest.mark.parametrize(
    "change",
    [
        "st = 'r'",
        "owner = 5",
        "st = 's'",
        "qk = null",
        "slot = true",
        "gb = 1",
        "st = 'z'",
        "max_att = 0",
        "max_att = 22",
    ],
)
async def test_c6_a_live_row_cannot_contradict_itself(rows: LiveRows, change: str) -> None:
    run = await rows.start_one()
    with pytest.raises(asyncpg.CheckViolationError):
        await rows.rows(f"update rt.live set {change} where id = $1 returning id", run)


@pytest.mark.parametrize(
    "change", ["sid = null", "event = null", "child = gen_random_uuid()", "name_h = null", "kind = 's'"]
)
async def test_a_wait_cannot_contradict_itself(rows: LiveRows, change: str) -> None:
    run, _ = await waiting(rows)
    with pytest.raises(asyncpg.CheckViolationError):
        await rows.rows(f"update rt.wait set {change} where run = $1 returning id", run)


async def test_a_row_reaches_a_tenant_only_through_its_own_partition(rows: LiveRows) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await rows.start_one(tenant=10**6)


async def test_a_transaction_that_was_cut_off_leaves_a_clean_connection_behind(rows: LiveRows) -> None:
    pool = Database(rows.database.dsn, name="test-single", size=1)
    await pool.open()
    try:
        for pause in (0.0, 0.001, 0.005):

            async def write(pause: float = pause) -> None:
                async with pool.transaction() as connection:
                    await connection.execute("insert into rt.owner (id, kind, node) values (77, 'x', 'x')")
                    await asyncio.sleep(10)

            task = asyncio.create_task(write())
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.wait({task})
            async with pool.connection() as connection:
                assert await connection.fetchval("select count(*) from rt.owner where id = 77") == 0
                await connection.execute("insert into rt.owner (id, kind, node) values (78, 'x', 'x')")
            assert await rows.rows("delete from rt.owner where id = 78 returning id"), "autocommit is autocommit again"
    finally:
        await pool.close()


def test_a_wait_is_indexed_by_what_its_condition_compares() -> None:
    trigger = event_value(id="1", name="a", data='{"k": 7}', ts=0)
    wait = OpenWait(kind="e", id="w", name="w", seq=0, event="paid", condition="async.data.k == event.data.k")
    assert wait.event is not None
    assert wait_key(wait.event, wait.condition, trigger).path == "data.k"
