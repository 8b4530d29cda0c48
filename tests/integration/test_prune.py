"""Retention: what is old goes, what is needed stays (engine section 11)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from uuid import UUID

import pytest

from services.core.domain.errors import Conflict, NotFound
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.replay_run import ReplayRequest, RunReplayer
from services.core.engine.retry_run import RunRetrier
from services.core.engine.starts import insert_starts
from services.core.engine.stored_run import stored_run
from services.core.store.queries import queries
from services.core.store.retention import delete_events, delete_runs
from services.scheduler.duties import prune as module
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.locks import held_up
from tests.support.pruning import A_STEP, TABLES, THE_END, age_ends, age_events, counts, ended, new_prune, whole_pass


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
        await held_up(connection)
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
        await held_up(connection)
    new = await sent
    assert not new.duplicate
    again = await hand.send("order.paid", event_id="e-1")
    assert (again.duplicate, again.id) == (True, new.id)
