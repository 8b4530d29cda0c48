"""The paths at which an event is looked at: so many and no more, forgotten when no wait is open on them, never too
early.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from services.core.domain.matching import event_value, wait_key
from services.core.domain.op import WaitForEvent
from services.core.domain.run import Status
from services.core.engine.wait_paths import FIRST, WaitPaths
from services.core.engine.wait_room import WaitRoom
from services.core.store.batch import columns
from services.core.store.commit_item import WaitRow
from services.core.store.queries import queries
from services.scheduler.duties.paths import ForgetPaths
from tests.support.engine import HandClock, database, postgres_url
from tests.support.hand import Hand
from tests.support.horizon import Asks, asks
from tests.support.live_rows import DAY_MS, LiveRows, rows

__all__ = ["asks", "database", "postgres_url", "rows"]

MOST = 32


async def waiting(hand: Hand, field: str, value: int = 1) -> UUID:
    """A run that waits for `paid` with this value in this field of its data."""
    run = await hand.start("work", json.dumps({field: value}))
    condition = f"event.data.{field} == async.data.{field}"
    step = WaitForEvent(id="w", name="w", event="paid", condition=condition, timeout_ms=DAY_MS)
    assert await hand.answer(run, step) is Status.WAITING
    return run


async def paths(rows: LiveRows) -> list[str]:
    """All paths that are known."""
    return [row["path"] for row in await rows.rows("select path from rt.wait_path order by path")]


@pytest.fixture
def forgetting(hand: Hand) -> WaitPaths:
    return WaitPaths(hand.database)


@asynccontextmanager
async def opening(hand: Hand, field: str) -> AsyncIterator[tuple[asyncpg.Connection, UUID]]:
    """A wait that is being opened: its transaction ends with the block."""
    run = await hand.start("work", json.dumps({field: 1}))
    trigger = event_value(id="1", name="a", data=json.dumps({field: 1}), ts=0)
    key = wait_key("paid", f"event.data.{field} == async.data.{field}", trigger)
    wait = LiveRows(hand.database, hand.tenant).wait("e", run=run, sid="w", delay_ms=DAY_MS, event="paid")
    wait = wait._replace(name_h=key.name_h, path=key.path, path_h=key.path_h, val_h=key.val_h, cond=key.condition)
    async with hand.database.transaction() as connection:
        await connection.execute(queries("engine")["open_waits"], *columns([wait], len(WaitRow._fields)))
        yield connection, run


async def test_waits_on_more_paths_than_an_event_is_looked_at_are_found_all_the_same(
    hand: Hand, rows: LiveRows
) -> None:
    runs = [await waiting(hand, f"k{number}") for number in range(MOST + 8)]
    assert len(await paths(rows)) == MOST
    assert await rows.value("select count(*) from rt.wait where path_h = 0") == 8
    again = await waiting(hand, "k0", 2)
    assert await rows.value("select path_h from rt.wait where run = $1", again) != 0, "a path that is known"
    for number, run in enumerate(runs):
        accepted = await hand.send("paid", json.dumps({f"k{number}": 1}))
        assert (accepted.resumed, await rows.status(run)) == (1, Status.QUEUED)


async def test_many_waits_of_one_commit_are_on_no_more_paths_either(hand: Hand, rows: LiveRows) -> None:
    for number in range(MOST - 3):
        await waiting(hand, f"k{number}")
    await asyncio.gather(*(waiting(hand, f"z{number}") for number in range(20)))
    assert len(await paths(rows)) <= MOST + 2, "two commits that overlap may each have counted before the other"
    await asyncio.gather(*(waiting(hand, f"y{number}") for number in range(20)))
    assert not [path for path in await paths(rows) if path.startswith("data.y")]


async def test_a_path_is_forgotten_when_no_wait_is_open_on_it(
    hand: Hand, rows: LiveRows, forgetting: WaitPaths
) -> None:
    runs = {field: await waiting(hand, field) for field in "abcde"}
    for field in "acd":
        await hand.cancel(runs[field])
    duty = ForgetPaths(hand.database)
    assert await duty.run_once() == {"forgotten": 3}
    assert await paths(rows) == ["data.b", "data.e"]
    for field in "be":
        assert (await hand.send("paid", json.dumps({field: 1}))).resumed == 1
    assert await duty.run_once() == {"forgotten": 2}
    await waiting(hand, "a")
    assert (await hand.send("paid", '{"a":1}')).resumed == 1


async def test_the_paths_are_gone_over_in_pieces(hand: Hand, rows: LiveRows, forgetting: WaitPaths) -> None:
    runs = [await waiting(hand, field) for field in "abcde"]
    await hand.cancel(runs[1])
    await hand.cancel(runs[4])
    forgotten, after = await forgetting.forget(FIRST, 2)
    assert (forgotten, after and after.path) == (1, "data.b")
    assert after is not None
    forgotten, after = await forgetting.forget(after, 2)
    assert (forgotten, after and after.path) == (0, "data.d")
    assert after is not None
    assert await forgetting.forget(after, 2) == (1, None)
    assert await paths(rows) == ["data.a", "data.c", "data.d"]


async def test_a_wait_that_was_being_opened_before_its_path_was_idle_keeps_it(
    hand: Hand, rows: LiveRows, forgetting: WaitPaths, asks: Asks
) -> None:
    await hand.cancel(await waiting(hand, "k"))
    async with opening(hand, "k") as (_, run):
        sweep = asyncio.create_task(forgetting.forget(FIRST, 10))
        await asks.come(3)
        assert not sweep.done(), "it cannot know yet"
        assert await rows.value("select idle from rt.wait_path") is True
    assert (await sweep)[0] == 0
    assert (await hand.send("paid", '{"k":1}')).resumed == 1
    assert await rows.status(run) is Status.QUEUED


async def test_a_wait_on_a_path_that_is_idle_takes_it_back(hand: Hand, rows: LiveRows, forgetting: WaitPaths) -> None:
    await hand.cancel(await waiting(hand, "k"))
    idle = await rows.rows(queries("engine")["idle_paths"], 0, 0, "", 10)
    assert [row["idle"] for row in idle] == [True]
    key = [[row[name]] for row in idle for name in ("tenant", "name_h", "path")]
    async with opening(hand, "k"):
        assert await rows.value(queries("engine")["forget_paths"], *key) == 0, "it is being taken back"
    assert await rows.value(queries("engine")["forget_paths"], *key) == 0
    assert await rows.value("select idle from rt.wait_path") is False
    assert (await hand.send("paid", '{"k":1}')).resumed == 1


async def test_whatever_the_order_no_wait_loses_its_path(hand: Hand, rows: LiveRows, forgetting: WaitPaths) -> None:
    dice = random.Random(2)
    stop = asyncio.Event()

    async def sweep() -> None:
        while not stop.is_set():
            await forgetting.forget(FIRST, 100)

    async def one(number: int) -> int:
        await asyncio.sleep(dice.uniform(0, 1.0))
        field = dice.choice("abc")
        await waiting(hand, field, number)
        return (await hand.send("paid", json.dumps({field: number}))).resumed

    sweeping = [asyncio.create_task(sweep()) for _ in range(2)]
    resumed = await asyncio.gather(*(one(number) for number in range(120)))
    stop.set()
    await asyncio.gather(*sweeping)
    assert resumed == [1] * 120


async def test_there_is_room_for_so_many_waits_that_no_equality_finds(hand: Hand, rows: LiveRows) -> None:
    clock = HandClock()
    room = WaitRoom(hand.database, 2, clock)

    def wait(condition: str | None, event: str = "paid") -> WaitRow:
        key = wait_key(event, condition, event_value(id="1", name="a", data="{}", ts=0))
        row = rows.wait("e", event=event, sid="w", delay_ms=DAY_MS)
        return row._replace(name_h=key.name_h, path=key.path, path_h=key.path_h, val_h=key.val_h, cond=key.condition)

    judged = wait("async.data.n > 1")
    for _ in range(2):
        assert await room.faults([judged]) == {}
        await rows.rest("w", [judged._replace(id=hand.ids.new())], run=await hand.start("work"))
        clock.seconds += 2
    faults = await room.faults([wait(None), judged])
    assert faults["w"].name == "LimitExceeded"
    assert "2 waits for 'paid'" in faults["w"].message
    for fits in (wait(None), wait("async.data.k == 1"), wait("async.data.n > 1", "refunded")):
        assert await room.faults([fits]) == {}
