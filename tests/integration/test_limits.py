"""Concurrency limits (rulings C16): edited while runs of before the edit wait, and very many waiting at one gate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from tests.support.hand import Hand
from tests.support.live_rows import LiveRows

_GRANT = "select run from rt.grant_v1($1)"


def one(limit: int) -> list[dict[str, Any]]:
    return [{"limit": limit}]


def two(limit: int, each: int) -> list[dict[str, Any]]:
    return [{"limit": limit}, {"limit": each, "key": "event.data.k"}]


async def declare(hand: Hand, limits: list[dict[str, Any]]) -> None:
    await hand.declare({"name": "work", "concurrency": limits})


async def slots(rows: LiveRows) -> set[UUID]:
    return {UUID(int=row["id"].int) for row in await rows.rows("select id from rt.live where slot")}


async def gates(rows: LiveRows, runs: Iterable[UUID]) -> list[int]:
    query = "select g from rt.live, unnest(array[ga, gb]) g where id = any ($1) and g is not null"
    return sorted({row["g"] for row in await rows.rows(query, list(runs))})


async def test_a_second_limit_holds_beside_runs_that_have_only_the_first(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, one(1))
    first, waits = await hand.start("work", '{"k": 1}'), await hand.start("work", '{"k": 1}')
    await declare(hand, two(1, 1))
    third, fourth = await hand.start("work", '{"k": 1}'), await hand.start("work", '{"k": 1}')
    assert await slots(rows) == {first}
    await declare(hand, two(9, 1))
    await rows.rows(_GRANT, await gates(rows, [third]))
    assert await slots(rows) == {first, waits, third}, f"not {fourth}: one run of the key at a time"


async def test_granters_of_before_and_after_the_edit_do_not_count_at_once(hand: Hand, rows: LiveRows) -> None:
    # Whether the two get into each other's way hangs on the order of their locks: either order must do.
    for number in range(6):
        await rows.rows("delete from rt.live")
        await declare(hand, [{"limit": 1, "key": str(number)}])
        first, waits = await hand.start("work", '{"k": 1}'), await hand.start("work", '{"k": 1}')
        await declare(hand, [{"limit": 2, "key": str(number)}, {"limit": 9, "key": "event.data.k"}])
        (gate,) = await gates(rows, [first])
        async with hand.database.transaction() as connection:
            assert [row["run"] for row in await connection.fetch(_GRANT, [gate])] == [waits]
            other = asyncio.create_task(hand.start("work", '{"k": 1}'))
            query = (
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            )
            async with asyncio.timeout(10):
                while not await rows.value(query):
                    await asyncio.sleep(0.01)
        third = await other
        assert await slots(rows) == {first, waits}, f"not {third}: two at a time"


async def test_many_runs_before_a_full_gate_do_not_hold_up_those_of_another_key(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, two(10, 1))
    busy = await hand.start("work", '{"k": 1}')
    row = await rows.live(busy)
    assert row is not None
    await rows.start(1_005, wf=row["wf"], ga=row["ga"], gb=row["gb"])
    runs, waits = await hand.start("work", '{"k": 2}'), await hand.start("work", '{"k": 2}')
    assert await slots(rows) == {busy, runs}
    freed = await gates(rows, [runs])
    await hand.cancel(runs)
    await rows.rows(_GRANT, freed)
    assert await slots(rows) == {busy, waits}
