"""The doors of the store: start, wait, finish, deliver, fire, from one connection and from many at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.core.domain.effect import OpenWait
from services.core.domain.matching import event_value, wait_key
from services.core.engine.starts import insert_starts
from services.core.store.batch import columns
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.engine import database, postgres_url
from tests.support.live_rows import DAY_MS, LiveRows, rows

__all__ = ["database", "postgres_url", "rows"]

ALL_PARTS = list(range(64))


async def finish(rows: LiveRows, *runs: UUID, status: str = "cancelled") -> list[asyncpg.Record]:
    none = [None] * len(runs)
    async with rows.database.connection() as connection:
        return list(await connection.fetch(queries("engine")["finish"], list(runs), [status] * len(runs), none, none))


DELIVER = "select * from rt.deliver_v1($1, $2, $3, $4, $5)"


def delivery(*waits: UUID, event: UUID | None = None) -> tuple[list[Any], ...]:
    """The arguments of `DELIVER`: this event to these waits."""
    count = len(waits)
    return list(waits), ["c"] * count, ['"got"'] * count, [None] * count, [event or uuid4()] * count


async def deliver(rows: LiveRows, *waits: UUID, event: UUID | None = None) -> list[asyncpg.Record]:
    return await rows.rows(DELIVER, *delivery(*waits, event=event))


async def fire(rows: LiveRows) -> None:
    await rows.rows("select * from rt.fire_v1($1, 500)", ALL_PARTS)


async def open_waits(rows: LiveRows, *waits: WaitRow) -> None:
    async with rows.database.connection() as connection:
        await connection.execute(queries("engine")["open_waits"], *columns(waits, len(WaitRow._fields)))


async def waiting(rows: LiveRows, **wait: Any) -> tuple[UUID, UUID]:
    """A run that waits for an event, and its wait."""
    row = rows.wait("e", **{"delay_ms": DAY_MS, **wait})
    return await rows.rest("w", [row]), row.id


async def st(rows: LiveRows, run: UUID) -> str:
    row = await rows.live(run)
    assert row is not None
    return str(row["st"])


# ---- start


async def test_a_start_makes_a_queued_run_that_ends_at_its_deadline(rows: LiveRows) -> None:
    run = await rows.start_one(timeout_ms=60_000)
    row = await rows.row(
        "select st::text as st, owner, epoch, rev, slot, extract(epoch from deadline - rt.now()) as left "
        "from rt.live where id = $1",
        run,
    )
    assert row is not None
    assert tuple(row)[:5] == ("q", None, 0, 0, False)
    assert 50 < row["left"] <= 60


async def test_a_delayed_start_counts_its_timeout_and_its_cancel_window_from_when_it_is_due(rows: LiveRows) -> None:
    run = await rows.start_one(delay_ms=3_600_000, timeout_ms=60_000)
    await open_waits(rows, rows.wait("x", run=run, delay_ms=30_000), rows.wait("x", run=run, delay_ms=90_000))
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["qk"]) == ("d", None)
    due = await rows.value("select due_at from rt.wait where run = $1 and kind = 'd'", run)
    assert (live["deadline"] - due).total_seconds() == 60
    windows = await rows.rows("select due_at from rt.wait where run = $1 and kind = 'x' order by due_at", run)
    assert [(row["due_at"] - due).total_seconds() for row in windows] == [30, 60]


async def test_a_start_in_the_past_is_ready_at_once(rows: LiveRows) -> None:
    run = await rows.start_one(at_ms=1)
    assert await st(rows, run) == "q"
    assert await rows.value("select count(*) from rt.wait where run = $1", run) == 0


async def test_c15_a_delayed_run_cannot_be_claimed_before_it_is_due_and_fires_once(rows: LiveRows) -> None:
    run = await rows.start_one(delay_ms=3_600_000)
    owner = await rows.owner()
    assert await rows.claim(owner, [run]) == []
    await fire(rows)
    assert await st(rows, run) == "d", "a timer never fires early"
    await rows.rows("update rt.wait set due_at = rt.now() where run = $1 returning id", run)
    await asyncio.gather(*(fire(rows) for _ in range(5)))
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["mail"]) == ("q", 1)


async def test_case_14_keys_of_different_types_are_different_keys(rows: LiveRows) -> None:
    keys = ["n:1", "s:1", "b:true", "s:true"]
    runs = [await rows.start_one(idem=key) for key in keys]
    assert await rows.value("select count(*) from rt.live where id = any ($1)", runs) == 4


async def start_all(rows: LiveRows, starts: Sequence[StartRow]) -> list[tuple[UUID, bool]]:
    async with rows.database.transaction() as connection:
        return await insert_starts(connection, starts, [])


async def test_c10_fifty_concurrent_starts_with_one_key_lead_to_one_run(rows: LiveRows) -> None:
    starts = [[rows.start_row(idem="s:k", wf=71)] for _ in range(50)]
    answers = [answer for (answer,) in await asyncio.gather(*(start_all(rows, each) for each in starts))]
    assert len({run for run, _ in answers}) == 1
    assert sum(is_new for _, is_new in answers) == 1
    assert await rows.value("select count(*) from rt.live where wf = 71") == 1
    assert await rows.value("select sum(n) from rt.usage_delta where wf = 71 and kind = 'r'") == 1


async def test_c11_batches_of_starts_in_opposite_orders_do_not_deadlock(rows: LiveRows) -> None:
    for _ in range(5):
        await rows.rows("delete from rt.idem where wf = 72 returning run")
        forth = [rows.start_row(idem=f"s:{number}", wf=72) for number in range(200)]
        back = [rows.start_row(idem=f"s:{number}", wf=72) for number in reversed(range(200))]
        one, other = await asyncio.gather(start_all(rows, forth), start_all(rows, back))
        assert [run for run, _ in one] == [run for run, _ in reversed(other)]
        assert sum(is_new for _, is_new in one + other) == 200


async def test_c10_the_winner_that_rolls_back_leaves_the_key_to_the_loser(rows: LiveRows) -> None:
    mine, theirs = rows.start_row(idem="s:k", wf=73), rows.start_row(idem="s:k", wf=73)
    with contextlib.suppress(LookupError):
        async with rows.database.transaction() as connection:
            assert await insert_starts(connection, [theirs], []) == [(theirs.id, True)]
            losing = asyncio.create_task(start_all(rows, [mine]))
            await blocked(rows)
            raise LookupError
    assert await losing == [(mine.id, True)]


async def test_c10_a_key_used_twice_in_one_batch_starts_one_run(rows: LiveRows) -> None:
    first, second = rows.start_row(idem="s:k", wf=74), rows.start_row(idem="s:k", wf=74)
    assert await start_all(rows, [first, second]) == [(first.id, True), (first.id, False)]
    assert await start_all(rows, [second]) == [(first.id, False)], "and an all-known batch says so"


async def test_case_13_a_key_leads_to_its_run_until_that_is_gone(rows: LiveRows) -> None:
    run = await rows.start_one(idem="s:k", wf=75)
    await finish(rows, run)
    assert await start_all(rows, [rows.start_row(idem="s:k", wf=75)]) == [(run, False)]
    await rows.rows("delete from rt.idem where run = $1 returning run", run)
    fresh = rows.start_row(idem="s:k", wf=75)
    assert await start_all(rows, [fresh]) == [(fresh.id, True)]


async def blocked(rows: LiveRows) -> None:
    """Wait until some transaction waits for another."""
    async with asyncio.timeout(10):
        while not await rows.value("select count(*) from pg_locks where not granted"):
            await asyncio.sleep(0.005)


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


# ---- deliver and fire


async def test_a_delivery_memoizes_the_step_at_its_place_and_wakes_the_run(rows: LiveRows) -> None:
    run, wait = await waiting(rows, seq=5, sid="paid")
    event = uuid4()
    (got,) = await deliver(rows, wait, event=event)
    assert (got["run"], got["owner"], got["waits"]) == (run, None, [wait])
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["mail"], live["bytes"]) == ("q", 1, len('"got"'))
    step = await rows.row(
        "select sid, seq, kind::text as kind, status::text as status, output, event from rt.steps where run = $1", run
    )
    assert step is not None
    assert tuple(step) == ("paid", 5, "e", "c", '"got"', event)


async def test_two_deliveries_of_one_wait_are_one(rows: LiveRows) -> None:
    run, wait = await waiting(rows)
    answers = await asyncio.gather(*(deliver(rows, wait) for _ in range(10)))
    assert sum(len(answer) for answer in answers) == 1
    live = await rows.live(run)
    assert live is not None
    assert live["mail"] == 1
    assert await rows.value("select count(*) from rt.steps where run = $1", run) == 1


async def test_c5_a_delivery_to_a_leased_run_moves_its_mail_and_nothing_else(rows: LiveRows) -> None:
    owner = await rows.owner()
    run = await rows.held(owner)
    wait = rows.wait("e", run=run, delay_ms=DAY_MS)
    await open_waits(rows, wait)
    before = dict(await rows.live(run) or {})
    (got,) = await deliver(rows, wait.id)
    assert got["owner"] == owner
    after = dict(await rows.live(run) or {})
    assert {key for key in before if before[key] != after[key]} == {"mail", "bytes"}


async def test_c29_one_event_resumes_every_open_wait_of_a_run_each_once(rows: LiveRows) -> None:
    waits = [rows.wait("e", sid=sid, delay_ms=DAY_MS) for sid in ("one", "two")]
    run = await rows.rest("w", waits)
    event = uuid4()
    (got,) = await deliver(rows, *(wait.id for wait in waits), event=event)
    assert set(got["waits"]) == {wait.id for wait in waits}
    assert await rows.value("select count(*) from rt.steps where run = $1 and event = $2", run, event) == 2


async def test_a_timeout_memoizes_null_and_a_backoff_nothing(rows: LiveRows) -> None:
    timed_out, _ = await waiting(rows, delay_ms=0)
    backing_off = await rows.rest("d", [rows.wait("b", delay_ms=0)])
    await fire(rows)
    steps = await rows.rows("select status::text as status, output, event from rt.steps where run = $1", timed_out)
    assert [tuple(step) for step in steps] == [("c", None, None)]
    assert await rows.value("select count(*) from rt.steps where run = $1", backing_off) == 0
    assert [await st(rows, run) for run in (timed_out, backing_off)] == ["q", "q"]


async def test_the_end_of_a_cancel_window_wakes_nobody(rows: LiveRows) -> None:
    run = await rows.rest("s", [rows.wait("s", delay_ms=DAY_MS)])
    await open_waits(rows, rows.wait("x", run=run, delay_ms=0))
    await fire(rows)
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["mail"]) == ("s", 0)
    assert await rows.value("select count(*) from rt.wait where run = $1 and kind = 'x'", run) == 0


async def test_c14_of_an_event_and_a_timeout_at_one_instant_exactly_one_wins(
    rows: LiveRows, database: Database
) -> None:
    runs = await rows.start(200)
    owner = await rows.owner()
    await rows.claim(owner, runs)
    waits = {run: rows.wait("e", run=run, delay_ms=0) for run in runs}
    for run, wait in waits.items():
        await rows.commit(owner, run, st="w", steps=1, wait_rows=(wait,))
    delivered = 0

    async def events() -> None:
        nonlocal delivered
        for run in runs:
            async with database.transaction() as connection:
                await connection.execute(queries("engine")["lock_runs"], rows.tenant, [run])
                got = await connection.fetch(DELIVER, *delivery(waits[run].id))
                delivered += len(got)

    async def timeouts() -> None:
        while await rows.value("select fired from rt.fire_v1($1, 3)", ALL_PARTS):
            await asyncio.sleep(0)

    await asyncio.gather(events(), timeouts())
    outcomes = await rows.rows(
        "select output is not null as got, count(*) as n from rt.steps where run = any ($1) group by 1", runs
    )
    counts = {row["got"]: row["n"] for row in outcomes}
    assert sum(counts.values()) == 200
    assert counts.get(True, 0) == delivered
    assert await rows.value("select count(*) from rt.live where id = any ($1) and st = 'q' and mail = 1", runs) == 200


async def test_s2_a_parked_run_stays_parked_over_an_event_and_not_over_its_own_timer(rows: LiveRows) -> None:
    park, wait = rows.wait("p", delay_ms=0), rows.wait("e", delay_ms=DAY_MS)
    run = await rows.rest("p", [park, wait])
    await deliver(rows, wait.id)
    assert await st(rows, run) == "p"
    await fire(rows)
    assert await st(rows, run) == "q"


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
