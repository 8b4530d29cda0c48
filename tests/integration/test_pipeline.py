"""The commit pipeline against a real Postgres: fences, busy rows, poison, and commits whose answer is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from services.core.store.commit_item import AttemptRow, Committed, Fenced, MarkRow, StorageRefused
from services.core.store.database import Database
from services.core.store.pipeline import Pipeline
from services.core.store.queries import queries
from tests.support.builders import ending, item, serving, step_row
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url
from tests.support.live_rows import DAY_MS, LiveRows, rows, until

__all__ = ["database", "postgres_url", "rows"]

Live = Mapping[str, Any]


@pytest.fixture
async def owner(rows: LiveRows) -> int:
    return await rows.owner()


@pytest.fixture
async def pipeline(database: Database, owner: int) -> AsyncIterator[Pipeline]:
    async with serving(database, owner) as served:
        yield served


async def held(rows: LiveRows, owner: int, **values: Any) -> Live:
    """The live row of a new run that `owner` holds."""
    return await read(rows, await rows.held(owner, **values))


async def read(rows: LiveRows, run: UUID) -> Live:
    row = await rows.live(run)
    assert row is not None
    return dict(row)


async def steps(rows: LiveRows, run: UUID) -> list[str]:
    return [row["sid"] for row in await rows.rows("select sid from rt.steps where run = $1 order by seq", run)]


async def everything(rows: LiveRows, run: UUID) -> list[object]:
    """All that the store knows of a run."""
    tables = {"live": "id", "steps": "run", "attempts": "run", "wait": "run", "ends": "run", "mark": "target"}
    return [
        await rows.rows(f"select to_json(t)::text from rt.{table} t where {key} = $1 order by 1", run)
        for table, key in tables.items()
    ] + [await used(rows)]


async def used(rows: LiveRows) -> int:
    """The steps that were counted, or are to be."""
    return int(
        await rows.value(
            "select coalesce((select sum(n) from rt.usage_delta where kind = 's'), 0)"
            " + coalesce((select sum(uses) from rt.live), 0)"
        )
    )


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


# ---- fences


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


# ---- letting go


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


# ---- poison

POISON: dict[str, dict[str, Any]] = {
    "NUL in a text": {"output": "a\0b"},
    "too long an id": {"sid": "x" * 256},
    "an unknown kind": {"kind": "z"},
    "a number beyond its column": {"ms": 2**40},
    "a lone surrogate": {"name": "\ud800"},
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
@pytest.mark.parametrize("place", [0, 25, 49])
async def test_c23_one_poisonous_item_of_fifty_fails_alone(
    rows: LiveRows, owner: int, poison: dict[str, Any], place: int
) -> None:
    runs = await rows.start(50)
    await rows.claim(owner, runs)
    lives = [await read(rows, run) for run in runs]
    items = [item(live, "a") for live in lives]
    bad = step_row(lives[place], "a")._replace(**poison)
    items[place] = item(lives[place], step_rows=(bad,), steps=1)
    async with serving(rows.database, owner) as pipeline:
        answers = await asyncio.gather(*map(pipeline.commit, items), return_exceptions=True)
        assert isinstance(answers[place], StorageRefused)
        assert sum(isinstance(answer, Committed) for answer in answers) == 49
        before = await read(rows, runs[place])
        assert (before["rev"], before["steps"], before["st"]) == (0, 0, "r")
        await pipeline.commit(item(before, "safe"))
    assert await steps(rows, runs[place]) == ["safe"]


async def test_c23_a_step_that_is_stored_already_refuses_nobody(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live, other = await held(rows, owner), await held(rows, owner)
    await pipeline.commit(item(live, "a"))
    again = {**live, "rev": 1, "steps": 1}
    double = step_row(again, "a", 1, output='"changed"')
    await asyncio.gather(pipeline.commit(item(again, step_rows=(double,))), pipeline.commit(item(other, "a")))
    assert await rows.value("select output from rt.steps where run = $1", live["id"]) == '"a"'


# ---- in doubt (C4)


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

    async def stopped() -> bool:
        return bool(await rows.value("select count(*) from pg_locks where not granted"))

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
