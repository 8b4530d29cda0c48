"""The commit pipeline against a real Postgres: what a commit does, what waits for what, and what it costs."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from uuid import uuid4

import pytest
from msgspec.structs import replace

from services.core.store.commit_item import AttemptRow, Committed, Fenced, MarkRow, StorageRefused
from services.core.store.pipeline import Pipeline
from services.core.store.queries import queries
from tests.support.builders import ending, item, serving
from tests.support.engine import database, postgres_url
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.pipeline import everything, held, owner, pipeline, read, steps, used
from tests.support.waiting import until

__all__ = ["database", "owner", "pipeline", "postgres_url", "rows"]


# ---- what a commit does


async def test_a_step_is_stored_and_only_rev_and_counters_move(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    before = await held(rows, owner)
    assert await pipeline.commit(item(before, "a", uses=1)) == Committed(0, "r", None)
    after = await read(rows, before["id"])
    changed = {key for key in dict(before) if before[key] != after[key]}
    assert changed == {"rev", "steps", "bytes", "uses"}
    assert (after["rev"], after["steps"], after["bytes"]) == (1, 1, 3)
    assert await steps(rows, before["id"]) == ["a"]


async def test_a_lone_step_and_one_in_a_batch_write_the_same(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    lives = [await held(rows, owner) for _ in range(3)]
    items = [item(live, "a", uses=2, fn_att=1, nd=2) for live in lives]
    items = [replace(each, step_rows=(each.step_rows[0]._replace(input="[1]", att=3, ms=250),)) for each in items]
    await pipeline.commit(items[0])
    await asyncio.gather(*(pipeline.commit(each) for each in items[1:]))
    kept = "rev, steps, bytes, fn_att, nd, uses, mail, st, owner"
    stored = "sid, seq, name, kind, status, output, error, input, att, t1 - t0 as took"
    alone, *others = [
        (
            dict(await rows.row(f"select {kept} from rt.live where id = $1", live["id"]) or {}),
            [dict(row) for row in await rows.rows(f"select {stored} from rt.steps where run = $1", live["id"])],
        )
        for live in lives
    ]
    assert all(other == alone for other in others)
    assert alone[1][0]["took"].total_seconds() == 0.25
    assert await used(rows) == 6


async def test_a_delay_counts_from_when_the_function_told_it(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live = await held(rows, owner)
    waits = [rows.wait("s", sid=f"s{ms}", run=live["id"], delay_ms=ms) for ms in (60_000, 5_000)]
    told_s = time.monotonic() - 20
    await pipeline.commit(item(live, keep=False, st="w", wait_rows=tuple(waits), told_s=told_s))
    stored = await rows.rows("select sid, due_at, created_at, rt.now() as now from rt.wait where run = $1", live["id"])
    assert {row["sid"]: row["due_at"] - row["created_at"] for row in stored} == {
        f"s{ms}": timedelta(milliseconds=ms) for ms in (60_000, 5_000)
    }
    gone = {row["now"] - row["created_at"] for row in stored}
    assert min(gone) >= timedelta(seconds=19.999)
    assert time.monotonic() - told_s >= max(gone).total_seconds() - 0.001


async def test_what_waited_long_for_its_commit_began_before_that(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live = await held(rows, owner)
    attempt = AttemptRow(live["id"], live["tenant"], 0, "a", 1, "{}", None, 3)
    told = item(live, "a", attempt_rows=(attempt,))
    told = replace(told, step_rows=(told.step_rows[0]._replace(ms=250),))
    began_s = time.monotonic()
    async with rows.locked(live["id"]):
        committing = asyncio.create_task(pipeline.commit(told))
        await asyncio.sleep(0.8)  # time passes
    await committing
    most_s = time.monotonic() - began_s
    for table, ms in (("steps", 250), ("attempts", 3)):
        took = await rows.value(f"select t1 - t0 from rt.{table} where run = $1", live["id"])
        assert 0.7 <= took.total_seconds() - ms / 1_000 <= most_s


@pytest.mark.parametrize("beside", [(), (7,)], ids=["behind no gate", "behind one"])
async def test_a_backoff_counts_from_when_the_attempt_is_stored_whatever_the_commit_waited(
    rows: LiveRows, owner: int, pipeline: Pipeline, beside: tuple[int, ...]
) -> None:
    live = await held(rows, owner)
    wait = rows.wait("b", sid="a", run=live["id"], delay_ms=2_000)
    attempt = AttemptRow(live["id"], live["tenant"], 0, "a", 1, "{}", None, 3)
    rest = {"keep": False, "st": "s", "gates": beside, "told_s": time.monotonic() - 20}
    await pipeline.commit(item(live, wait_rows=(wait,), attempt_rows=(attempt,), **rest))
    stored = await rows.row(
        "select w.due_at - a.t1 as pause from rt.wait w join rt.attempts a on a.run = w.run where w.run = $1",
        live["id"],
    )
    assert stored is not None
    assert stored["pause"] >= timedelta(seconds=2)


async def test_an_end_takes_the_live_row_and_every_wait(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live = await held(rows, owner)
    async with rows.database.connection() as connection:
        waits = [rows.wait("x", run=live["id"]), rows.wait("e", run=live["id"])]
        await connection.execute(queries("engine")["open_waits"], *map(list, zip(*waits, strict=True)))
    await pipeline.commit(ending(live, "a"))
    assert await rows.live(live["id"]) is None
    assert await rows.value("select count(*) from rt.wait where run = $1", live["id"]) == 0
    end = await rows.row("select status, epoch, rev, steps from rt.ends where run = $1", live["id"])
    assert end is not None
    assert tuple(end) == ("completed", live["epoch"], live["rev"] + 1, 1)
    statuses = await rows.rows("select sid, status::text as status from rt.steps where run = $1", live["id"])
    assert {(row["sid"], row["status"]) for row in statuses} == {("a", "c"), ("e", "x")}


async def test_every_kind_of_row_is_written_in_one_commit(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live = await held(rows, owner)
    wait = rows.wait("s", run=live["id"], delay_ms=60_000, seq=1)
    mark = MarkRow(live["id"], rows.tenant, "send_event", "{}")
    attempt = AttemptRow(live["id"], rows.tenant, 0, "a", 1, "{}", "a note", 5)
    done = await pipeline.commit(
        item(live, "a", keep=False, st="s", wait_rows=(wait,), mark_rows=(mark,), attempt_rows=(attempt,), uses=2)
    )
    assert done.st == "s"
    after = await read(rows, live["id"])
    assert (after["st"], after["owner"], after["att"], after["slot"]) == ("s", None, 1, False)
    assert await rows.value("select n from rt.usage_delta where kind = 's'") == 2
    assert await rows.value("select body from rt.mark where target = $1", live["id"]) == "{}"
    assert await rows.value("select note from rt.attempts where run = $1", live["id"]) == "a note"
    left = "select extract(epoch from due_at - rt.now()) from rt.wait where run = $1"
    assert 50 < await rows.value(left, live["id"]) <= 60


async def test_many_runs_commit_together_and_each_gets_its_own_answer(rows: LiveRows, owner: int) -> None:
    runs = await rows.start(100)
    await rows.claim(owner, runs)
    lives = [await read(rows, run) for run in runs]
    async with serving(rows.database, owner) as pipeline:
        gone = lives[7]
        async with rows.database.connection() as connection:
            await connection.execute("update rt.live set epoch = epoch + 1 where id = $1", lives[3]["id"])
            await connection.execute(queries("engine")["finish"], [gone["id"]], ["cancelled"], [None], [None])
        answers = await asyncio.gather(*(pipeline.commit(item(live, "a")) for live in lives), return_exceptions=True)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, Fenced)] == [3, 7]
    assert sum(isinstance(answer, Committed) for answer in answers) == 98
    assert await rows.value("select count(*) from rt.steps") == 98


async def test_c5_a_step_that_has_its_result_waits_no_more_and_starts_no_child(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    done, other = await held(rows, owner), await held(rows, owner)
    await pipeline.commit(item(done, "a"))
    done = await read(rows, done["id"])
    before = await everything(rows, done["id"])
    child = uuid4()
    for wait, starts in (
        (rows.wait("s", sid="a", run=done["id"], delay_ms=DAY_MS), ()),
        (rows.wait("e", sid="a", run=done["id"], delay_ms=DAY_MS), ()),
        (
            rows.wait("c", sid="a", run=done["id"], child=child, delay_ms=DAY_MS),
            (rows.start_row(id=child, parent=done["id"], source="invoke"),),
        ),
    ):
        asleep = rows.wait("s", sid="a", run=other["id"], delay_ms=DAY_MS)
        refused, fine = await asyncio.gather(
            pipeline.commit(item(done, keep=False, st="w", steps=1, wait_rows=(wait,), start_rows=starts)),
            pipeline.commit(item(other, wait_rows=(asleep,))),
            return_exceptions=True,
        )
        assert isinstance(refused, StorageRefused)
        assert isinstance(fine, Committed), "the same step of another run"
        assert await everything(rows, done["id"]) == before
        other = await held(rows, owner)
    assert await rows.live(child) is None


# ---- order and contention


async def test_c7_two_items_of_one_run_are_committed_one_after_the_other(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live = await held(rows, owner)
    following = {**live, "rev": live["rev"] + 1, "steps": 1}
    third = {**live, "rev": live["rev"] + 2, "steps": 2}
    await asyncio.gather(
        *(pipeline.commit(item(one, sid)) for one, sid in ((live, "a"), (following, "b"), (third, "c")))
    )
    after = await read(rows, live["id"])
    assert (after["rev"], after["steps"]) == (3, 3)
    assert await steps(rows, live["id"]) == ["a", "b", "c"]


async def test_c11_a_busy_row_holds_up_no_other_run_and_is_done_when_it_is_free(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    busy, free = await held(rows, owner), await held(rows, owner)
    async with rows.locked(busy["id"]):
        waiting = asyncio.create_task(pipeline.commit(item(busy, "a")))
        await pipeline.commit(item(free, "a"))
        await pipeline.commit(item({**free, "rev": 1, "steps": 1}, "b"))
        assert not waiting.done()
    assert (await waiting).st == "r"
    assert await steps(rows, busy["id"]) == ["a"]


async def test_an_item_whose_awaiter_was_cancelled_is_not_sent(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live, other = await held(rows, owner), await held(rows, owner)
    async with rows.locked(live["id"]):
        waiting = asyncio.create_task(pipeline.commit(item(live, "a")))
        await pipeline.commit(item(other, "a"))
        waiting.cancel()
        await asyncio.wait({waiting})
    await pipeline.commit(item({**other, "rev": 1, "steps": 1}, "b"))
    assert await steps(rows, live["id"]) == []


async def test_backlog_counts_what_waits(rows: LiveRows, owner: int) -> None:
    live = await held(rows, owner)
    pipeline = Pipeline(rows.database.dsn, owner=owner)
    waiting = asyncio.create_task(pipeline.commit(item(live, "a")))
    await asyncio.sleep(0)
    assert pipeline.backlog == 1
    serves = asyncio.create_task(pipeline.run())
    await waiting
    assert pipeline.backlog == 0
    serves.cancel()
    await asyncio.wait({serves})


async def test_what_was_used_is_counted_once_whatever_a_run_does_next(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    counted = "select coalesce(sum(n), 0) from rt.usage_delta where kind = 's'"
    ends, rests, goes_on = [dict(await held(rows, owner)) for _ in range(3)]
    for live in (ends, rests):
        await pipeline.commit(item(live, "a", uses=3))
        live.update(rev=live["rev"] + 1, steps=1)
    assert await rows.value(counted) == 0
    await pipeline.commit(ending(ends, "b", uses=1))
    assert await rows.value(counted) == 4
    await pipeline.commit(item(rests, "b", uses=1, keep=False, st="q"))
    assert await rows.value(counted) == 8
    for nth in range(64):
        await pipeline.commit(item(goes_on, f"s{nth}", uses=1))
        goes_on.update(rev=goes_on["rev"] + 1, steps=goes_on["steps"] + 1)
    assert await rows.value(counted) == 8 + 64
    assert await used(rows) == 8 + 64


# ---- what it costs


async def test_x12_a_hot_step_updates_no_index(rows: LiveRows, owner: int) -> None:
    live = dict(await held(rows, owner))
    counts = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = 'rt' and relname = 'live'"

    async def updates() -> tuple[int, int]:
        row = await rows.row(counts)
        assert row is not None
        return row["n_tup_upd"], row["n_tup_hot_upd"]

    before = await updates()
    async with serving(rows.database, owner) as pipeline:
        for number in range(50):
            await pipeline.commit(item(live, f"s{number}"))
            live["rev"] += 1
            live["steps"] += 1

    async def counted() -> bool:  # a server process counts when it ends
        return (await updates())[0] >= before[0] + 50

    await until(counted)
    after = await updates()
    assert after[1] - before[1] >= 50
