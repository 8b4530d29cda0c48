"""Usage is exact: whatever is retried, crashes or is not folded yet (rulings C27)."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.errors import InvalidInput, NotFound
from services.core.domain.op import (
    EventToSend,
    Invoke,
    OpError,
    RunCompleted,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from services.core.domain.usage_record import MAX_DAYS, Usage, UsageCount, usage_range
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.retry_run import RunRetrier
from services.core.engine.usage import read_usage
from services.core.store.database import Database
from services.core.store.usage import today
from services.scheduler.duties.usage import FoldUsage
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows

DONE = RunCompleted()


async def usage(rows: LiveRows, project: str = "", first: str = "", last: str = "") -> Usage:
    return await read_usage(rows.database, rows.tenant, project=project, first=first, last=last)


def named(found: Usage) -> dict[tuple[str | None, str | None], tuple[int, int]]:
    return {(each.project, each.workflow): (each.count.runs, each.count.steps) for each in found.workflows}


async def test_every_kind_of_step_counts_and_every_attempt_of_run(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    failed = StepFailed(id="a", name="a", error=OpError("Error", "no"))
    await hand.answer(run, failed)
    await hand.fire(run)
    await hand.answer(run, StepCompleted(id="a", name="a"))
    await hand.answer(run, SendEvent(id="b", name="b", events=(EventToSend(name="x"),)))
    await hand.answer(run, Sleep(id="c", name="c", for_ms=60_000))
    await hand.fire(run)
    await hand.answer(run, WaitForEvent(id="d", name="d", event="paid", timeout_ms=60_000))
    await hand.send("paid")
    await hand.answer(run, Invoke(id="e", name="e", workflow="work", timeout_ms=60_000))
    await hand.fire(run)
    await hand.fail(run)  # an attempt of the function is no step
    await hand.fire(run)
    await hand.answer(run, DONE)
    found = await usage(rows)
    assert found.total == UsageCount(runs=2, steps=6), "the invoked child is a run, too"
    assert named(found) == {("default", "work"): (2, 6)}


async def test_a_retry_of_a_run_starts_none_and_a_replay_does(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    await hand.cancel(run)
    await RunRetrier(rows.database, DefinitionsCache(None), Hints(NullPublisher())).retry(rows.tenant, run)
    assert (await usage(rows)).total == UsageCount(runs=1, steps=0)


async def test_a_start_that_finds_its_key_taken_counts_nothing(hand: Hand, rows: LiveRows) -> None:
    for _ in range(3):
        await hand.start("work", idempotency_key="k")
    assert (await usage(rows)).total.runs == 1


async def test_a_commit_that_is_done_again_or_fenced_counts_once(rows: LiveRows) -> None:
    owner = await rows.owner()
    run = await rows.held(owner)
    live = await rows.live(run)
    assert live is not None
    fence = {"epoch": live["epoch"], "rev": live["rev"], "mail": live["mail"]}
    for result in ("d", "f"):
        answer = await rows.commit(owner, run, keep=True, st="r", steps=1, uses=1, **fence)
        assert answer["result"] == result
    assert (await usage(rows)).total.steps == 1


async def test_what_is_folded_and_what_is_not_are_one_sum_at_every_moment(rows: LiveRows) -> None:
    """Reads beside folds: a delta is always in exactly one of both places."""
    for _ in range(40):
        await rows.start(5)
    fold = FoldUsage(rows.database)
    done = asyncio.Event()

    async def read() -> int:
        reads = 0
        while not done.is_set():
            assert (await usage(rows)).total.runs == 200
            reads += 1
        return reads

    async def fold_slowly() -> None:
        async with rows.database.connection() as connection:
            while await connection.fetchval("select rt.fold_usage_v1(1)"):
                pass
        done.set()

    reads, _ = await asyncio.gather(read(), fold_slowly())
    assert reads > 2
    await fold.run_once()
    assert (await usage(rows)).total.runs == 200


async def put(rows: LiveRows, wf: int, days_ago: int, kind: str, n: int, table: str = "usage") -> None:
    await rows.value(
        f"insert into rt.{table} (tenant, wf, day, kind, n) "
        "values ($1, $2, (rt.now() at time zone 'UTC')::date - $3::int, $4::text::pg_catalog.\"char\", $5)",
        rows.tenant,
        wf,
        days_ago,
        kind,
        n,
    )


async def test_a_range_has_every_day_of_it_and_no_other(hand: Hand, rows: LiveRows) -> None:
    async with rows.database.connection() as connection:
        now = await today(connection)
    wf = await rows.value("select id from rt.workflows")
    for days_ago, count in ((31, 1), (30, 2), (5, 4), (0, 8)):
        await put(rows, wf, days_ago, "r", count)
        await put(rows, wf, days_ago, "s", 10 * count, table="usage_delta")
    found = await usage(rows)
    assert found.total == UsageCount(14, 140)
    assert [day for day, _ in found.daily] == [now - timedelta(days=n) for n in range(30, -1, -1)]
    assert {day: count for day, count in found.daily if count != UsageCount()} == {
        now - timedelta(days=n): UsageCount(count, 10 * count) for n, count in ((30, 2), (5, 4), (0, 8))
    }
    one = (now - timedelta(days=31)).isoformat()
    found = await usage(rows, first=one, last=one)
    assert (found.total, found.daily) == (UsageCount(1, 10), ((now - timedelta(days=31), UsageCount(1, 10)),))


async def test_projects_and_tenants_are_kept_apart(hand: Hand, rows: LiveRows) -> None:
    await rows.value("insert into rt.projects (tenant, slug) values ($1, 'shop')", rows.tenant)
    await hand.declare({"name": "work"}, {"name": "pack"}, project="shop")
    other = LiveRows(rows.database, await rows.value("select rt.create_tenant('other', '')"))
    ids = {
        (row["slug"], row["name"]): row["id"]
        for row in await rows.rows(
            "select p.slug, w.name, w.id from rt.workflows w join rt.projects p on p.id = w.project"
        )
    }
    for number, key in enumerate(sorted(ids), start=1):
        await put(rows, ids[key], 0, "r", number)
        await put(other, ids[key], 0, "r", 1_000)
        await put(other, ids[key], 0, "r", 1_000, table="usage_delta")
    assert named(await usage(rows)) == {("default", "work"): (1, 0), ("shop", "pack"): (2, 0), ("shop", "work"): (3, 0)}
    shop = await usage(rows, project="shop")
    assert named(shop) == {("shop", "pack"): (2, 0), ("shop", "work"): (3, 0)}
    assert shop.total.runs == sum(count.runs for _, count in shop.daily) == 5
    with pytest.raises(NotFound):
        await usage(rows, project="nothing")


async def test_what_deleted_workflows_used_stays_in_the_sums(hand: Hand, rows: LiveRows) -> None:
    await put(rows, 900, 0, "r", 3)
    await put(rows, 901, 0, "s", 4)
    found = await usage(rows)
    assert found.total == UsageCount(3, 4)
    assert named(found) == {(None, None): (3, 4)}


async def test_the_folded_days_are_found_by_an_index(rows: LiveRows, database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("set local enable_seqscan = off")
        plan = await connection.fetch(
            f"explain select * from t_{rows.tenant}.usage where day between '2026-01-01' and '2026-02-01'"
        )
    assert "Index" in "\n".join(row[0] for row in plan)


DAYS = st.dates(date(2000, 1, 1), date(2100, 1, 1)) | st.dates() | st.sampled_from([date.min, date.max])


@given(DAYS, DAYS, DAYS)
def test_a_range_is_in_order_and_bounded(first: date, last: date, now: date) -> None:
    if timedelta() <= last - first < timedelta(days=MAX_DAYS):
        assert usage_range(first.isoformat(), last.isoformat(), now) == (first, last)
    else:
        with pytest.raises(InvalidInput):
            usage_range(first.isoformat(), last.isoformat(), now)
    since, until = usage_range("", last.isoformat(), max(now, last))
    assert (until - since).days == min(30, (last - date.min).days)


@pytest.mark.parametrize(
    "text", ["20260101", "2026-02-30", "2026-W01-1", "yesterday", "2026-1-1", "٢٠٢٦-٠١-٠١", "2026-01-01 "]
)
def test_a_day_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        usage_range(text, "", date(2026, 6, 1))
