"""Waits that look back (rulings C8): whatever overlaps, an event that came in time is found, and found once."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from services.core.domain.op import WaitForEvent
from services.core.domain.run import Status
from services.core.engine.hints import Hints
from services.core.engine.look_back import LookBack
from services.core.engine.look_backs import LookBacks
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.horizon import Asks, asks
from tests.support.live_rows import LiveRows, Recorder, recorder, rows

__all__ = ["asks", "database", "postgres_url", "recorder", "rows"]

DAY_MS = 86_400_000


@pytest.fixture
def look_back(hand: Hand, recorder: Recorder) -> LookBack:
    return LookBack(hand.database, Hints(recorder))


async def looking_back(hand: Hand, rows: LiveRows, *, ms: int = DAY_MS, **op: Any) -> tuple[UUID, UUID]:
    """A run whose wait for `paid` looks back, and that wait; nobody has looked yet."""
    run = await hand.start("work", op.pop("data", "{}"))
    step = WaitForEvent(id="w", name="w", event="paid", timeout_ms=DAY_MS, lookback_ms=ms, **op)
    assert await hand.answer(run, step) is Status.WAITING
    return run, await rows.value("select id from rt.wait where run = $1 and kind = 'e'", run)


async def got(rows: LiveRows, run: UUID) -> UUID | None:
    """The event that resumed the run."""
    event: UUID | None = await rows.value("select event from rt.steps where run = $1 and kind = 'e'", run)
    return event


async def test_c8_an_event_that_came_before_is_found_the_oldest_first(
    hand: Hand, rows: LiveRows, look_back: LookBack, recorder: Recorder
) -> None:
    await hand.send("paid", '{"k":1}')
    first = await hand.send("paid", '{"k":2}')
    await hand.send("paid", '{"k":2}')
    run, wait = await looking_back(hand, rows, data='{"k":2}', condition="async.data.k == event.data.k")
    await look_back.arm(wait)
    assert await got(rows, run) == first.id
    assert await rows.status(run) is Status.QUEUED
    assert recorder.ready == [run]
    await look_back.arm(wait)
    assert await rows.value("select count(*) from rt.steps where run = $1", run) == 1


async def test_c8_without_an_event_the_wait_goes_on_as_any_other(
    hand: Hand, rows: LiveRows, look_back: LookBack
) -> None:
    run, wait = await looking_back(hand, rows)
    await look_back.arm(wait)
    assert await rows.value("select arming from rt.wait where id = $1", wait) is False
    later = await hand.send("paid")
    assert (later.resumed, await got(rows, run)) == (1, later.id)


async def test_c8_a_wait_is_live_for_new_events_while_it_still_looks_back(hand: Hand, rows: LiveRows) -> None:
    run, _ = await looking_back(hand, rows)
    assert (await hand.send("paid")).resumed == 1
    assert await rows.status(run) is Status.QUEUED


async def test_an_event_from_before_the_time_looked_back_to_is_not_taken(
    hand: Hand, rows: LiveRows, look_back: LookBack
) -> None:
    old = await hand.send("paid")
    await rows.rows(
        "update rt.events set received_at = rt.now() - interval '1 hour' where id = $1 returning id", old.id
    )
    run, wait = await looking_back(hand, rows, ms=60_000)
    await look_back.arm(wait)
    assert await rows.status(run) is Status.WAITING


@pytest.mark.parametrize("stored_first", [True, False], ids=["event stored before the look", "event stored after it"])
async def test_c8_an_event_whose_acceptance_overlaps_the_wait_is_waited_for(
    hand: Hand, rows: LiveRows, look_back: LookBack, asks: Asks, stored_first: bool
) -> None:
    event = hand.ids.new()

    async def store(connection: asyncpg.Connection) -> None:
        await connection.execute(
            "insert into rt.events (tenant, id, name, data, ts, source, effects) "
            "values ($1, $2, 'paid', '{}', 1, 'api', '{}')",
            hand.tenant,
            event,
        )

    async with rows.database.transaction() as connection:
        await connection.fetchval("select pg_current_xact_id()")  # and has read that nobody waits
        if stored_first:
            await store(connection)
        run, wait = await looking_back(hand, rows)
        arming = asyncio.create_task(look_back.arm(wait))
        await asks.come(4)  # once before it reads what is there, then again and again
        assert not arming.done(), "it cannot know yet"
        assert await rows.value("select arming from rt.wait where id = $1", wait) is True
        if not stored_first:
            await store(connection)
    await asyncio.wait_for(arming, 10)
    assert await got(rows, run) == event


async def test_c29_an_event_that_a_run_has_had_is_invisible_to_its_later_looks(
    hand: Hand, rows: LiveRows, look_back: LookBack
) -> None:
    await hand.declare({"name": "work", "triggers": [{"event": "paid"}]})
    started = await hand.send("paid")
    (run,) = started.runs

    def step(id: str) -> WaitForEvent:
        return WaitForEvent(id=id, name="w", event="paid", timeout_ms=DAY_MS, lookback_ms=DAY_MS)

    await hand.answer(run, step("w"))
    await look_back.arm(await rows.value("select id from rt.wait where run = $1", run))
    assert await rows.status(run) is Status.WAITING, "not by the event that started it"
    second = await hand.send("paid")
    assert await got(rows, run) == second.id
    await hand.answer(run, step("w:1"))
    await look_back.arm(await rows.value("select id from rt.wait where run = $1", run))
    assert await rows.status(run) is Status.WAITING, "nor by the one that resumed it"


async def test_c8_whatever_the_order_every_run_gets_its_event_exactly_once(
    hand: Hand, rows: LiveRows, look_back: LookBack
) -> None:
    dice = random.Random(8)
    runs = [await hand.start("work", f'{{"k":{number}}}') for number in range(50)]
    condition = "async.data.k == event.data.k"

    async def wait(run: UUID) -> None:
        await asyncio.sleep(dice.uniform(0, 0.03))
        step = WaitForEvent(id="w", name="w", event="paid", condition=condition, timeout_ms=DAY_MS, lookback_ms=-1)
        await hand.answer(run, step)
        wait_id = await rows.value("select id from rt.wait where run = $1", run)
        if wait_id is not None:
            await look_back.arm(wait_id)

    async def send(number: int) -> None:
        await asyncio.sleep(dice.uniform(0, 0.03))
        await hand.send("paid", f'{{"k":{number}}}')

    await asyncio.gather(*map(wait, runs), *map(send, range(len(runs))))
    assert {await rows.status(run) for run in runs} == {Status.QUEUED}
    assert await rows.value("select count(*) from rt.steps where run = any ($1) and event is not null", runs) == 50


async def test_c8_a_wait_that_its_executor_left_arming_is_swept(
    hand: Hand, rows: LiveRows, look_back: LookBack
) -> None:
    await hand.send("paid")
    run, _ = await looking_back(hand, rows)
    look_backs = LookBacks(hand.database, look_back)
    assert await look_backs.sweep(60_000) == 0, "its executor is given time"
    assert await look_backs.sweep(0) == 1
    await look_backs.idle()
    assert await rows.status(run) is Status.QUEUED
