"""Timers: never early, exactly once, soon, whoever looks and however many."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AbstractAsyncContextManager

import asyncpg
import pytest

from services.core.bus.subjects import partition_of
from services.core.domain.run import Status
from services.core.engine.hints import Hints, Publisher
from services.core.runtime.clock import SystemClock
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.scheduler.duties import wake as wake_duty
from services.scheduler.duties.glance import Glance
from services.scheduler.duties.wake import Wake
from services.scheduler.partitions import EVERY_PARTITION, Partitions
from services.scheduler.ticker import Ticker
from tests.support.live_rows import DAY_MS, LiveRows, Recorder
from tests.support.ticking import ticking
from tests.support.waiting import until


def new_wake(database: Database, publisher: Publisher) -> Wake:
    clock = SystemClock()
    partitions = Partitions(database.dsn, node="test", clock=clock)
    return Wake(database, partitions, Hints(publisher), clock, DatabaseClock(clock))


def glance_for(database: Database, wake: Wake) -> Glance:
    glance = Glance(database, DatabaseClock(SystemClock()))
    glance.tells("due", wake.sweep)
    return glance


def waking(database: Database, *wakes: Wake) -> AbstractAsyncContextManager[None]:
    return ticking(*(Ticker([wake, glance_for(database, wake)]) for wake in wakes))


async def fire(rows: LiveRows, limit: int = 500) -> asyncpg.Record:
    row = await rows.row("select * from rt.fire_v1($1, $2)", EVERY_PARTITION, limit)
    assert row is not None
    return row


async def test_two_schedulers_fire_each_timer_once_and_never_early(rows: LiveRows, recorder: Recorder) -> None:
    runs = [await rows.asleep(DAY_MS) for _ in range(120)]
    await rows.rows(
        "update rt.wait w set due_at = rt.now() + interval '300 ms' + n.n * interval '5 ms', "
        "created_at = w.created_at - interval '1 h' "
        "from (select id, row_number() over (order by id) as n from rt.wait) n where n.id = w.id"
    )
    due = {row["run"]: row["due_at"] for row in await rows.rows("select run, due_at from rt.wait")}
    async with waking(rows.database, new_wake(rows.database, recorder), new_wake(rows.database, recorder)):
        async with asyncio.timeout(15):
            while len(recorder.ready) < len(runs):
                recorder.told.clear()
                await recorder.told.wait()
    assert sorted(recorder.ready) == sorted(runs)
    steps = await rows.rows("select run, status::text, output, error, t1 from rt.steps")
    assert {step["run"] for step in steps} == set(runs)
    assert len(steps) == len(runs)
    assert all(step["t1"] >= due[step["run"]] for step in steps)
    assert {(step["status"], step["output"], step["error"]) for step in steps} == {("c", None, None)}
    assert await rows.value("select count(*) from rt.live where st = 'q' and mail = 1") == len(runs)


async def test_a_hinted_timer_nearer_than_all_known_is_fired_in_time(rows: LiveRows, recorder: Recorder) -> None:
    wake = new_wake(rows.database, recorder)
    async with waking(rows.database, wake):
        await rows.asleep(0)
        async with asyncio.timeout(15):
            await recorder.told.wait()  # by now the horizon has been read; what comes is not in it
        run = await rows.asleep(150)
        due_ms = await rows.value(
            "select ceil(extract(epoch from due_at) * 1000)::bigint from rt.wait where run = $1", run
        )
        await wake.hinted([(run, due_ms)])
        await until(lambda: is_in(rows, run, Status.QUEUED))
    late_ms = await rows.value(
        "select (extract(epoch from t1) * 1000 - $2)::float from rt.steps where run = $1", run, float(due_ms)
    )
    assert late_ms >= 0


async def test_c22_a_timer_whose_hint_was_lost_is_found_within_a_second(rows: LiveRows, recorder: Recorder) -> None:
    wake = new_wake(rows.database, recorder)
    async with waking(rows.database, wake):
        await rows.asleep(0)
        async with asyncio.timeout(15):
            await recorder.told.wait()
        run = await rows.asleep(20)
        await until(lambda: is_in(rows, run, Status.QUEUED), guard_s=5)


async def test_what_an_executor_is_to_fire_it_is_left_for_a_moment(rows: LiveRows, recorder: Recorder) -> None:
    near, far = await rows.asleep(0), await rows.asleep(DAY_MS)
    await rows.rows(
        "update rt.wait set due_at = rt.now(), created_at = created_at - interval '61 s' where run = $1", far
    )
    row = await rows.row("select * from rt.fire_v1($1, 500, false, $2)", EVERY_PARTITION, DAY_MS)
    assert row is not None
    assert row["runs"] == [far], "the moment has not passed for the other"
    async with waking(rows.database, new_wake(rows.database, recorder)):
        await until(lambda: is_in(rows, near, Status.QUEUED))


async def test_who_looks_again_for_held_runs_leaves_executors_their_timers(
    rows: LiveRows, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_duty, "_GRACE_MS", 60_000)
    held, near = await rows.asleep(0), await rows.asleep(0)
    long_ago = "rt.now() - interval '2 minutes'"
    await rows.rows(f"update rt.wait set due_at = {long_ago}, created_at = {long_ago} where run = $1", held)
    wake = new_wake(rows.database, recorder)
    async with rows.locked(held):
        assert await wake.run_once() == {"fired": 0}
    assert await wake.run_once() == {"fired": 1}
    assert recorder.ready == [held]
    assert await rows.status(near) is Status.SLEEPING


async def test_what_an_executor_fires_is_not_on_the_horizon(rows: LiveRows) -> None:
    await rows.asleep(30_000)
    later = await rows.asleep(DAY_MS)
    await rows.rows("update rt.wait set due_at = rt.now() + interval '30 s' where run = $1", later)
    await rows.rows("update rt.wait set created_at = rt.now() - interval '1 h' where run = $1", later)
    until_ms = await rows.value("select rt.ms(rt.now()) + 60000")
    upcoming = await rows.rows("select part from rt.upcoming_v1($1, $2, 100)", EVERY_PARTITION, until_ms)
    assert [row["part"] for row in upcoming] == [partition_of(later)]


async def test_a_sleep_of_a_week_fires_when_the_database_says_so(
    rows: LiveRows, recorder: Recorder, postgres_url: str
) -> None:
    run = await rows.asleep(7 * DAY_MS)
    wake = new_wake(rows.database, recorder)
    assert await wake.run_once() == {"fired": 0}
    name = postgres_url.rsplit("/", 1)[1]
    await rows.value(f"alter database {name} set rt.clock_offset_ms = '{7 * DAY_MS + 1}'")
    later = Database(postgres_url, name="later", size=1)
    await later.open()
    try:
        assert await new_wake(later, recorder).run_once() == {"fired": 1}
    finally:
        await later.close()
    assert recorder.ready == [run]


async def test_what_an_event_has_resumed_the_timer_leaves_alone(rows: LiveRows, recorder: Recorder) -> None:
    wait = rows.wait("e", delay_ms=0)
    run = await rows.rest("w", [wait])
    await rows.value("select rt.deliver_v1($1, '{c}', '{1}', '{null}', $2)", [wait.id], [uuid.uuid4()])
    assert await new_wake(rows.database, recorder).run_once() == {"fired": 0}
    step = await rows.row("select status::text, output from rt.steps where run = $1", run)
    assert step is not None
    assert (step["status"], step["output"]) == ("c", "1")
    live = await rows.live(run)
    assert live is not None
    assert live["mail"] == 1


async def test_of_an_event_and_a_timeout_exactly_one_wins(rows: LiveRows) -> None:
    waits = [rows.wait("e", delay_ms=0) for _ in range(60)]
    runs = [await rows.rest("w", [wait]) for wait in waits]
    ids = [wait.id for wait in waits]
    count = len(ids)

    async def deliver() -> None:
        async with rows.database.transaction() as connection:
            await connection.fetch("select from rt.live where id = any ($1) order by id for no key update", runs)
            await connection.fetch(
                "select * from rt.deliver_v1($1, $2, $3, $4, $5)",
                ids,
                ["c"] * count,
                ["1"] * count,
                [None] * count,
                [uuid.uuid4()] * count,
            )

    await asyncio.gather(fire(rows, 20), deliver(), fire(rows, 20), fire(rows, 20))
    assert await rows.value("select count(*) from rt.steps") == count
    assert await rows.value("select count(*) from rt.live where mail = 1 and st = 'q'") == count


async def test_a_child_that_takes_too_long_fails_its_step(rows: LiveRows, recorder: Recorder) -> None:
    child = await rows.start_one()
    run = await rows.rest("w", [rows.wait("c", child=child, delay_ms=0)])
    assert await new_wake(rows.database, recorder).run_once() == {"fired": 1}
    step = await rows.row("select status::text, kind::text, error, child from rt.steps where run = $1", run)
    assert step is not None
    assert (step["status"], step["kind"], step["child"]) == ("f", "i", child)
    assert '"name":"InvokeTimeout"' in step["error"]
    assert await rows.status(child) is Status.QUEUED, "the child goes on"


async def test_a_window_to_cancel_in_just_closes(rows: LiveRows, recorder: Recorder) -> None:
    run = await rows.rest("s", [rows.wait("s", delay_ms=DAY_MS), rows.wait("x", delay_ms=0)])
    assert await new_wake(rows.database, recorder).run_once() == {"fired": 1}
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["mail"]) == ("s", 0)
    assert await rows.value("select array_agg(kind::text) from rt.wait where run = $1", run) == ["s"]
    assert recorder.ready == []


async def test_a_held_run_gets_its_mail_and_no_hint(rows: LiveRows, recorder: Recorder) -> None:
    owner = await rows.owner()
    run = await rows.held(owner)
    await rows.commit(owner, run, keep=True, wait_rows=(rows.wait("s", run=run, at_ms=0),))
    assert await new_wake(rows.database, recorder).run_once() == {"fired": 1}
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"], live["mail"]) == ("r", owner, 1)
    assert recorder.ready == []
    # Its holder saw nothing of it and lets go to sleep: the delivery turns that into the queue.
    assert (await rows.commit(owner, run, st="w", mail=0))["st"] == "q"


async def test_a_run_locked_by_another_is_fired_as_soon_as_it_is_free(rows: LiveRows, recorder: Recorder) -> None:
    run = await rows.rest("s", [rows.wait("s", at_ms=0)])
    wake = new_wake(rows.database, recorder)
    async with rows.locked(run):
        row = await fire(rows)
        assert (row["fired"], row["more"]) == (0, True)
        assert await wake.run_once() == {"fired": 0}
    began = time.monotonic()
    await wake.idle()  # a moment, not the second of the next pass
    assert time.monotonic() - began < 0.9
    assert await wake.run_once() == {"fired": 1}
    assert recorder.ready == [run]


async def test_more_than_a_batch_is_fired_in_one_go(rows: LiveRows, recorder: Recorder) -> None:
    runs = await rows.start(1_300, delay_ms=1)
    await until(lambda: rows.value("select bool_and(due_at < rt.now()) from rt.wait"))
    assert await new_wake(rows.database, recorder).run_once() == {"fired": 1_300}
    assert sorted(recorder.ready) == sorted(runs)
    assert await rows.value("select count(*) from rt.live where st = 'q'") == 1_300


async def test_a_crowded_partition_keeps_no_other_waiting(rows: LiveRows) -> None:
    crowd = [uuid.UUID(int=(uuid.uuid4().int & ~63) | 5) for _ in range(300)]
    for run in crowd:
        await rows.start_one(id=run, delay_ms=1)
    other = uuid.UUID(int=(uuid.uuid4().int & ~63) | 6)
    await rows.start_one(id=other, delay_ms=2)
    await until(lambda: rows.value("select bool_and(due_at < rt.now()) from rt.wait"))
    row = await fire(rows, 100)
    assert row["more"]
    assert partition_of(other) == 6
    assert other in row["runs"]


async def test_it_looks_again_when_the_database_was_away(rows: LiveRows, recorder: Recorder, postgres_url: str) -> None:
    run = await rows.asleep(50)
    async with waking(rows.database, new_wake(rows.database, recorder)):
        for _ in range(3):
            await rows.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
        await until(lambda: is_in(rows, run, Status.QUEUED))


async def is_in(rows: LiveRows, run: uuid.UUID, status: Status) -> bool:
    return await rows.status(run) is status
