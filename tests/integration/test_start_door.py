"""The door that starts runs: when they are due, and keys that lead to one run, from many connections at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from uuid import UUID

from services.core.engine.starts import insert_starts
from services.core.store.commit_item import StartRow
from tests.support.doors import finish, fire, open_waits, st
from tests.support.engine import database, postgres_url
from tests.support.live_rows import LiveRows, rows
from tests.support.locks import held_up

__all__ = ["database", "postgres_url", "rows"]


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
            await held_up(connection)
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
