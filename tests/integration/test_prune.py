"""Retention: what is old goes, what is needed stays, in small batches that anybody can go on with (rulings O6)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from services.core.domain.errors import Conflict, NotFound
from services.core.domain.op import RunCompleted, StepCompleted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.replay_run import ReplayRequest, RunReplayer
from services.core.engine.retry_run import RunRetrier
from services.core.engine.starts import insert_starts
from services.core.engine.stored_run import stored_run
from services.core.runtime.settings import RetentionSettings
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from services.core.store.retention import delete_events, delete_runs
from services.scheduler.duties import prune as module
from services.scheduler.duties.prune import Prune
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows

DAYS = RetentionSettings(run_days=30, event_days=7, usage_days=400)
A_STEP = StepCompleted(id="a", name="a", output="1")
THE_END = RunCompleted(output="2")
TABLES = ("runs", "ends", "steps", "attempts")


def new_prune(database: Database, rows_per_s: int = 1_000_000_000) -> Prune:
    return Prune(database, DAYS, rows_per_s=rows_per_s)


async def whole_pass(rows: LiveRows, prune: Prune | None = None) -> Counter[str]:
    """The tenant's next pass, from its time on to its end, and what it removed."""
    prune = prune or new_prune(rows.database)
    await prune.run_once()  # a new tenant gets its time
    await rows.value("update rt.prune set next_at = rt.now() - interval '1 s'")
    removed: Counter[str] = Counter()
    for _ in range(1_000):
        removed.update(await prune.run_once())
        if await rows.value("select stage = 'runs' and next_at > rt.now() from rt.prune"):
            return removed
    raise AssertionError("the pass does not end")


async def age_ends(rows: LiveRows, days: float) -> None:
    await rows.value("update rt.ends set ended = ended - $1::float8 * interval '1 day'", days)


async def age_events(rows: LiveRows, days: float) -> None:
    """Events and their ids as if they had come earlier: ids are of the time of their making."""
    shift = round(days * 86_400_000)
    aged = (
        "create function pg_temp.aged(id uuid, ms bigint) returns uuid language sql as $$ select "
        "(lpad(to_hex(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint - ms), 12, '0')"
        " || right(replace(id::text, '-', ''), 20))::uuid $$"
    )
    async with rows.database.transaction() as connection:
        await connection.execute(aged)
        await connection.execute("update rt.runs set event = pg_temp.aged(event, $1)", shift)
        await connection.execute("update rt.event_ids set event = pg_temp.aged(event, $1)", shift)
        await connection.execute(
            "update rt.events set id = pg_temp.aged(id, $1), received_at = received_at - $1 * interval '1 ms'", shift
        )
        await connection.execute("drop function pg_temp.aged")


async def ended(hand: Hand, **start: Any) -> UUID:
    """A run with a step, a failed attempt and an end."""
    run = await hand.start("work", **start)
    await hand.fail(run)
    await hand.fire(run)
    await hand.answer(run, A_STEP)
    await hand.answer(run, THE_END)
    return run


async def counts(rows: LiveRows, run: UUID) -> dict[str, int]:
    found = {}
    for table in TABLES:
        key = "id" if table == "runs" else "run"
        found[table] = await rows.value(f"select count(*) from rt.{table} where {key} = $1", run)
    return found


async def test_a_finished_run_goes_with_all_that_is_its_own(hand: Hand, rows: LiveRows) -> None:
    run = await ended(hand, idempotency_key="k")
    await age_ends(rows, 29.9)
    assert (await whole_pass(rows))["runs"] == 0
    assert await counts(rows, run) == {"runs": 1, "ends": 1, "steps": 1, "attempts": 1}
    await age_ends(rows, 0.2)
    assert (await whole_pass(rows))["runs"] == 1
    assert await counts(rows, run) == dict.fromkeys(TABLES, 0)
    assert await rows.value("select count(*) from rt.idem") == 0


async def test_an_idempotency_key_is_free_again_once_its_run_is_pruned(hand: Hand, rows: LiveRows) -> None:
    first = await ended(hand, idempotency_key="k")
    assert await hand.start("work", idempotency_key="k") == first
    await age_ends(rows, 31)
    await whole_pass(rows)
    second = await hand.start("work", idempotency_key="k")
    assert second != first
    assert await hand.start("work", idempotency_key="k") == second


async def test_the_age_is_that_of_the_end(hand: Hand, rows: LiveRows) -> None:
    run = await ended(hand)
    await rows.value("update rt.runs set created_at = created_at - interval '300 days'")
    await rows.value("update rt.ends set started = started - interval '300 days'")
    assert (await whole_pass(rows))["runs"] == 0
    assert (await counts(rows, run))["runs"] == 1


async def test_an_active_run_is_never_pruned(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    await hand.answer(run, A_STEP)
    await rows.value("update rt.runs set created_at = created_at - interval '900 days'")
    await rows.value("update rt.live set started = started - interval '900 days'")
    assert (await whole_pass(rows))["runs"] == 0
    assert await counts(rows, run) == {"runs": 1, "ends": 0, "steps": 1, "attempts": 0}


async def test_a_run_for_which_another_waits_stays_until_it_is_served(hand: Hand, rows: LiveRows) -> None:
    run = await ended(hand)
    await age_ends(rows, 31)
    parent = await rows.rest("w", [rows.wait("c", child=run)])
    assert (await whole_pass(rows))["runs"] == 0
    await rows.value("delete from rt.wait where run = $1", parent)
    assert (await whole_pass(rows))["runs"] == 1


async def test_a_run_that_somebody_holds_is_left_for_the_next_pass(hand: Hand, rows: LiveRows) -> None:
    held, free = await ended(hand), await ended(hand)
    await age_ends(rows, 31)
    async with rows.database.transaction() as connection:
        await connection.execute("select from rt.runs where id = $1 for key share", held)
        assert (await whole_pass(rows))["runs"] == 1
    assert (await counts(rows, held))["runs"] == 1
    assert (await counts(rows, free))["runs"] == 0
    assert (await whole_pass(rows))["runs"] == 1


def retrier(rows: LiveRows) -> RunRetrier:
    return RunRetrier(rows.database, DefinitionsCache(None), Hints(NullPublisher()))


def replayer(hand: Hand) -> RunReplayer:
    return RunReplayer(hand.database, DefinitionsCache(None), Hints(NullPublisher()), hand.ids)


async def test_a_retry_and_a_pruning_at_once_leave_a_whole_run_or_none(hand: Hand, rows: LiveRows) -> None:
    runs: list[UUID] = []
    for _ in range(12):
        runs.append(await hand.start("work"))
        await hand.answer(runs[-1], A_STEP)
        await hand.cancel(runs[-1])
    await age_ends(rows, 31)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now()")

    async def retry(run: UUID) -> bool:
        try:
            await retrier(rows).retry(rows.tenant, run)
        except (NotFound, Conflict):
            return False
        return True

    retried = asyncio.gather(*map(retry, runs))
    await prune.run_once()
    for run, is_active in zip(runs, await retried, strict=True):
        live = await rows.live(run)
        found = await counts(rows, run)
        assert (live is not None) == is_active
        assert found == ({"runs": 1, "ends": 0, "steps": 1, "attempts": 0} if is_active else dict.fromkeys(TABLES, 0))


async def test_events_go_with_their_ids_and_may_come_again(hand: Hand, rows: LiveRows) -> None:
    first = await hand.send("order.paid", event_id="e-1")
    assert (await hand.send("order.paid", event_id="e-1")).duplicate
    await age_events(rows, 6.9)
    assert (await whole_pass(rows))["events"] == 0
    assert (await hand.send("order.paid", event_id="e-1")).duplicate
    await age_events(rows, 0.2)
    assert (await whole_pass(rows))["events"] == 1
    assert await rows.value("select count(*) from rt.event_ids") == 0
    second = await hand.send("order.paid", event_id="e-1")
    assert not second.duplicate
    assert second.id != first.id


async def declare_listener(hand: Hand) -> None:
    await hand.declare({"name": "work"}, {"name": "ship", "triggers": [{"event": "order.paid"}]})


async def test_an_event_stays_as_long_as_an_active_run_needs_it(hand: Hand, rows: LiveRows) -> None:
    await declare_listener(hand)
    (run,) = (await hand.send("order.paid", '{"n": 1}', event_id="e-1")).runs
    await age_events(rows, 100)
    assert (await whole_pass(rows))["events"] == 0
    assert (await hand.send("order.paid", event_id="e-1")).duplicate, "its id is kept with it"
    await hand.answer(run, THE_END)
    assert (await whole_pass(rows))["events"] == 1


async def test_without_its_event_a_finished_run_is_shown_but_not_done_again(hand: Hand, rows: LiveRows) -> None:
    await declare_listener(hand)
    (run,) = (await hand.send("order.paid")).runs
    await hand.cancel(run)
    await age_events(rows, 8)
    assert (await whole_pass(rows))["events"] == 1
    for again in (
        retrier(rows).retry(rows.tenant, run),
        replayer(hand).replay(ReplayRequest(tenant=rows.tenant, run=run)),
    ):
        with pytest.raises(Conflict) as refused:
            await again
        assert refused.value.reason == "EVENT_PRUNED"
    assert (await counts(rows, run))["runs"] == 1


async def test_an_event_that_a_run_is_about_to_need_is_left(hand: Hand, rows: LiveRows) -> None:
    await declare_listener(hand)
    (run,) = (await hand.send("order.paid")).runs
    await hand.cancel(run)
    await age_events(rows, 8)
    async with rows.database.transaction() as connection:
        await stored_run(connection, DefinitionsCache(None), rows.tenant, run)
        assert (await whole_pass(rows))["events"] == 0
    assert (await whole_pass(rows))["events"] == 1


@pytest.mark.parametrize("verb", ["retry", "replay"])
async def test_who_needs_an_event_again_and_its_pruning_never_lose_it(hand: Hand, rows: LiveRows, verb: str) -> None:
    await declare_listener(hand)
    runs: list[UUID] = []
    for number in range(10):
        runs += (await hand.send("order.paid", json.dumps({"n": number}))).runs
        await hand.cancel(runs[-1])
    await age_events(rows, 8)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now(), stage = 'events'")

    async def again(run: UUID) -> None:
        with contextlib.suppress(Conflict):
            if verb == "retry":
                await retrier(rows).retry(rows.tenant, run)
            else:
                await replayer(hand).replay(ReplayRequest(tenant=rows.tenant, run=run))

    work = asyncio.gather(*map(again, runs))
    await prune.run_once()
    await work
    kept = "select count(*) from rt.live l join rt.runs r on r.id = l.id join rt.events e on e.id = r.event"
    assert await rows.value(kept) == await rows.value("select count(*) from rt.live")
    assert await rows.value("select count(*) from rt.live") == await rows.value("select count(*) from rt.events")


async def test_kept_events_are_not_read_again_within_a_pass(
    hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    await declare_listener(hand)
    for _ in range(5):
        await hand.send("order.paid")
    for _ in range(3):
        await hand.send("order.lost")
    await age_events(rows, 8)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now(), stage = 'events'")
    removed = [await prune.run_once() for _ in range(4)]
    assert [each["events"] for each in removed] == [0, 0, 1, 2]


async def test_usage_goes_after_its_own_time(rows: LiveRows) -> None:
    for days, count in ((401, 600), (400, 3), (0, 2)):
        await rows.value(
            "insert into rt.usage (tenant, wf, day, kind, n) "
            "select $1, n, (rt.now() at time zone 'UTC')::date - $2::int, 'r', 1 from generate_series(1, $3::int) n",
            rows.tenant,
            days,
            count,
        )
    assert (await whole_pass(rows))["usage"] == 600
    assert await rows.value("select count(*) from rt.usage") == 5


async def test_a_batch_is_bounded_by_what_it_weighs(rows: LiveRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WEIGHT", 1_000)
    owner = await rows.owner()
    for _ in range(5):
        await rows.end(owner, await rows.held(owner), "completed")
    await rows.value("update rt.ends set steps = 600")
    await age_ends(rows, 31)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now()")
    assert [(await prune.run_once())["runs"] for _ in range(3)] == [2, 2, 1]


async def test_all_schedulers_together_keep_one_pace(rows: LiveRows) -> None:
    owner = await rows.owner()
    for _ in range(20):
        await rows.end(owner, await rows.held(owner), "completed")
    await age_ends(rows, 31)
    first, second = (new_prune(rows.database, rows_per_s=1) for _ in range(2))
    await first.run_once()
    await rows.value("update rt.prune set next_at = rt.now()")
    assert await first.run_once() == {"runs": 20}
    assert await second.run_once() == {}, "the pace is stored, not each scheduler's own"
    free_s = await rows.value("select extract(epoch from free_at - rt.now())::float8 from rt.prune_pace")
    assert 50 < free_s <= 60, "3 rows of each of the 20 runs, at one a second"
    await rows.value("update rt.prune_pace set free_at = rt.now()")
    assert await second.run_once() == {"runs": 0}, "another goes on where the first stopped"


async def test_two_schedulers_are_never_at_it_at_once(rows: LiveRows) -> None:
    prune = new_prune(rows.database)
    async with rows.database.transaction() as connection:
        await connection.execute("select from rt.prune_pace for update")
        assert await prune.run_once() == {}


async def test_each_tenant_has_its_time_of_the_day_and_none_waits_for_another(
    rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    others = [LiveRows(rows.database, await rows.value("select rt.create_tenant($1, '')", f"t{n}")) for n in range(40)]
    prune = new_prune(rows.database)
    await prune.run_once()
    times = await rows.rows("select next_at, next_at - rt.now() as ahead from rt.prune")
    assert len({row["next_at"] for row in times}) > 30
    assert all(0 < row["ahead"].total_seconds() <= 86_400 for row in times)
    owner = await rows.owner()
    for tenant, count in ((rows, 6), (others[0], 2)):
        for _ in range(count):
            await tenant.end(owner, await tenant.held(owner), "completed")
    await age_ends(rows, 31)
    await rows.value(
        "update rt.prune set next_at = rt.now() - tenant * interval '1 ms' where tenant = any ($1)",
        [rows.tenant, others[0].tenant],
    )
    await prune.run_once()
    await prune.run_once()
    left = {row["tenant"]: row["n"] for row in await rows.rows("select tenant, count(*) n from rt.runs group by 1")}
    assert left == {rows.tenant: 4}, "a long history is pruned in turns with the others'"


async def test_one_tenant_that_fails_does_not_stop_the_others(rows: LiveRows) -> None:
    other = LiveRows(rows.database, await rows.value("select rt.create_tenant('other', '')"))
    owner = await rows.owner()
    for tenant in (rows, other):
        await tenant.end(owner, await tenant.held(owner), "completed")
    await age_ends(rows, 31)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now() - tenant * interval '1 s'")
    await rows.value(f"alter table t_{other.tenant}.runs rename to away")
    assert await prune.run_once() == {"failed": 1}
    assert await prune.run_once() == {"runs": 1}


async def test_a_batch_that_breaks_off_changes_nothing(hand: Hand, rows: LiveRows) -> None:
    run = await ended(hand)
    await age_ends(rows, 31)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now()")
    await rows.value(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise 'no' using errcode = '57014'; end $$"
    )
    await rows.value("create trigger refuse before update on rt.prune_pace for each row execute function refuse()")
    with pytest.raises(Exception, match="database is away"):
        await prune.run_once()
    assert await counts(rows, run) == {"runs": 1, "ends": 1, "steps": 1, "attempts": 1}
    await rows.value("drop trigger refuse on rt.prune_pace")
    assert await prune.run_once() == {"runs": 1}


EXPLAINED: dict[str, tuple[str, str]] = {
    "runs": ("old_runs", "('2020-01-01', '1900-01-01', '00000000-0000-0000-0000-000000000000', 500, 5000)"),
    "events": (
        "old_events",
        "('00000000-0000-0000-0000-000000000000', '2020-01-01', '01000000-0000-0000-0000-000000000000', 500, 5000)",
    ),
    "usage": ("delete_usage", "('2020-01-01', 500)"),
}


@pytest.mark.parametrize("stage", EXPLAINED)
async def test_what_is_old_is_found_by_an_index(rows: LiveRows, stage: str) -> None:
    name, values = EXPLAINED[stage]
    async with rows.database.transaction() as connection:
        await connection.execute("set local enable_seqscan = off")
        await connection.execute(f"prepare looked as {tenant_query('retention', name, rows.tenant)}")
        plan = "\n".join(row[0] for row in await connection.fetch(f"explain execute looked {values}"))
    assert "Seq Scan" not in plan, plan
    assert "Index" in plan, plan
    assert "Sort" not in plan, plan


@pytest.mark.parametrize("held_only", [True, False])
async def test_a_start_beside_the_pruning_of_its_key_waits_for_it_and_starts_a_run(
    hand: Hand, rows: LiveRows, held_only: bool
) -> None:
    old = await ended(hand, idempotency_key="k")
    await age_ends(rows, 31)
    async with rows.database.transaction() as connection:
        cut = await connection.fetchval("select rt.now() - interval '30 days'")
        if held_only:
            await connection.fetch(queries("retention")["hold_keys"], [old])
        else:
            assert await delete_runs(connection, rows.tenant, [old], cut) == 1
        start = asyncio.create_task(hand.start("work", idempotency_key="k"))
        async with rows.database.connection() as watcher:
            while not await watcher.fetchval("select exists (select from pg_locks where not granted)"):
                await asyncio.sleep(0.005)
        if held_only:
            assert await delete_runs(connection, rows.tenant, [old], cut) == 1
    new = await start
    assert new != old
    assert await rows.live(new) is not None
    assert await rows.value("select run from rt.idem") == new


async def test_a_key_that_a_start_has_found_is_not_taken_from_under_it(hand: Hand, rows: LiveRows) -> None:
    old = await ended(hand, idempotency_key="k")
    await age_ends(rows, 31)
    row = await rows.row("select wf, key from rt.idem")
    assert row is not None
    async with rows.database.transaction() as connection:
        values = await insert_starts(connection, [rows.start_row(wf=row["wf"], idem=row["key"])], [])
        assert values == [(old, False)]
        assert (await whole_pass(rows))["runs"] == 0
    assert (await whole_pass(rows))["runs"] == 1


async def test_a_duplicate_beside_the_pruning_of_its_event_is_registered_anew(hand: Hand, rows: LiveRows) -> None:
    old = await hand.send("order.paid", event_id="e-1")
    await rows.value("update rt.events set received_at = received_at - interval '8 days'")
    async with rows.database.transaction() as connection:
        cut = await connection.fetchval("select rt.now() - interval '7 days'")
        assert await delete_events(connection, rows.tenant, [old.id], cut) == 1
        sent = asyncio.create_task(hand.send("order.paid", event_id="e-1"))
        async with rows.database.connection() as watcher:
            while not await watcher.fetchval("select exists (select from pg_locks where not granted)"):
                await asyncio.sleep(0.005)
    new = await sent
    assert not new.duplicate
    again = await hand.send("order.paid", event_id="e-1")
    assert (again.duplicate, again.id) == (True, new.id)
