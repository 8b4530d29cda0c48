"""Concurrency limits (rulings C16): very many waiting, before gates of very many keys, cost the next one nothing."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.regate import Regater
from services.scheduler.duties.gates import SweepGates
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows

ALL = {"limit": 50}
EACH = {"limit": 1, "key": "event.data.k"}
PLACE = {"limit": 1, "key": "event.data.p"}


async def declare(hand: Hand, *limits: dict[str, Any]) -> None:
    await hand.declare({"name": "work", "concurrency": list(limits)})


async def slots(rows: LiveRows) -> set[UUID]:
    return {UUID(int=row["id"].int) for row in await rows.rows("select id from rt.live where slot")}


async def copies(rows: LiveRows, run: UUID, count: int) -> None:
    """So many more runs wait before the gates of `run`, as if they had been started one by one."""
    live = await rows.live(run)
    assert live is not None
    gates = {key: live[key] for key in ("wf", "gv", "ga", "gb")}
    await rows.start(count, **gates)


async def work(rows: LiveRows) -> int:
    """Rows of runs that statements have read, from the table and its indexes, and written."""
    await rows.value("select pg_stat_force_next_flush()")
    return int(
        await rows.value(
            """
            select coalesce(t.seq_tup_read, 0) + coalesce(t.idx_tup_fetch, 0) + t.n_tup_upd
                   + (select coalesce(sum(i.idx_tup_read), 0) from pg_stat_user_indexes i where i.relid = t.relid)
            from pg_stat_user_tables t where t.schemaname = 'rt' and t.relname = 'live'
            """
        )
    )


async def swept(rows: LiveRows, passes: int = 1) -> None:
    """Passes of a scheduler."""
    hints = Hints(NullPublisher())
    duty = SweepGates(Gates(rows.database, hints), Regater(rows.database, DefinitionsCache(None), hints))
    for _ in range(passes):
        await duty.run_once()


@pytest.mark.parametrize("blocked", [1_100, 20_000])
async def test_a_run_with_room_at_both_gates_starts_at_once_however_many_wait(
    hand: Hand, rows: LiveRows, blocked: int
) -> None:
    await declare(hand, ALL, EACH)
    first = await hand.start("work", '{"k": "a"}')
    await copies(rows, first, blocked)
    other = await hand.start("work", '{"k": "b"}')
    assert await slots(rows) == {first, other}


async def test_a_slot_costs_the_same_however_many_wait_and_whatever_their_keys(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, {"limit": 3}, EACH)
    rounds = []
    for _ in range(3):
        for key in "abcd":
            await hand.start("work", f'{{"k": "{key}"}}')
        for key in "abcd":
            await hand.start("work", f'{{"k": "{key}"}}')
        before = await work(rows)
        for _ in range(4):
            await hand.cancel(min(await slots(rows)))
        rounds.append(await work(rows) - before)
        assert len(await slots(rows)) == 3
        waiting = await rows.rows("select id from rt.live where st = 'b' order by qk limit 1")
        await copies(rows, UUID(int=waiting[0]["id"].int), 2_000)
        await asyncio.gather(*(hand.start("work", f'{{"k": "{key}"}}') for key in range(len(rounds) * 300)))
    assert rounds[2] < 2 * rounds[0], "cancelling and granting, as few and as many wait"


async def test_gates_of_workflows_that_are_looked_at_together_have_each_its_own_limit(
    hand: Hand, rows: LiveRows
) -> None:
    limits = {"one": [1], "three": [3], "narrow": [2, EACH], "wide": [4, {"limit": 3, "key": "event.data.k"}]}
    names = list(limits)
    await hand.declare(*({"name": name, "concurrency": limits[name]} for name in names))
    for key in "aaaabbbb":
        for name in names:
            await hand.start(name, f'{{"k": "{key}"}}')
    await rows.rows("update rt.live set slot = false, st = 'b', qk = coalesce(qk, rt.now()) returning id")
    pairs = [(row["ga"], row["gb"]) for row in await rows.rows("select distinct ga, gb from rt.live")]
    await Gates(rows.database, Hints(NullPublisher())).grant(pairs)
    query = "select w.name, count(*) as n from rt.live l join rt.workflows w on w.id = l.wf where slot group by w.name"
    assert {row["name"]: row["n"] for row in await rows.rows(query)} == {"one": 1, "three": 3, "narrow": 2, "wide": 4}


async def test_both_of_two_keys_are_looked_at_from_where_there_is_room(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, EACH, PLACE)

    async def start(key: str, place: str) -> UUID:
        return await hand.start("work", f'{{"k": "{key}", "p": "{place}"}}')

    one, two = await start("1", "a"), await start("2", "b")
    waits = [await start("1", "b"), await start("2", "a"), await start("3", "a"), await start("1", "c")]
    assert await slots(rows) == {one, two}
    await hand.cancel(one)  # key 1 and place a have room: the oldest for which the other gate has room, too
    assert await slots(rows) == {two, waits[2], waits[3]}
    await hand.cancel(two)
    assert await slots(rows) == {waits[2], waits[3]}
    await hand.cancel(waits[3])
    assert await slots(rows) == {waits[0], waits[2]}
    await hand.cancel(waits[2])
    assert await slots(rows) == {waits[0], waits[1]}


async def test_when_the_first_of_a_pair_ends_the_next_stands_for_it(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, {"limit": 1}, EACH)
    busy, first, second = [await hand.start("work", f'{{"k": "{key}"}}') for key in "abb"]
    await hand.cancel(first)
    await hand.cancel(busy)
    assert await slots(rows) == {second}


async def test_a_pair_for_which_nobody_stands_is_found_by_the_sweep(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, {"limit": 1}, EACH)
    busy, first, second = [await hand.start("work", f'{{"k": "{key}"}}') for key in "abb"]
    await rows.rows("delete from rt.live where id = any ($1) returning id", [busy, first])  # and nobody was told
    assert await slots(rows) == set()
    await swept(rows)
    assert await slots(rows) == {second}


async def test_more_room_than_a_batch_lets_everyone_through(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, {"limit": 1}, {"limit": 1, "key": "event.data.x"})
    first = await hand.start("work", "{}")
    await copies(rows, first, 1_500)
    await declare(hand, {"limit": 10_000}, {"limit": 10_000, "key": "event.data.x"})
    await swept(rows)
    assert len(await slots(rows)) == 1_501


async def test_many_granters_at_once_pass_neither_limit(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, {"limit": 5}, {"limit": 2, "key": "event.data.k"})
    runs = await asyncio.gather(*(hand.start("work", f'{{"k": {number % 4}}}') for number in range(40)))
    for left in range(len(runs), 0, -1):
        await asyncio.gather(*(swept(rows) for _ in range(3)))
        counts = await rows.rows("select gb, count(*) as n from rt.live where slot group by gb")
        assert sum(row["n"] for row in counts) == min(5, left), "no more, and no fewer where there are enough keys"
        assert max(row["n"] for row in counts) <= 2
        await hand.cancel(min(await slots(rows)))
        if left <= 10:
            break


async def test_a_pairs_front_that_another_holds_for_a_moment_hides_nobody(hand: Hand, rows: LiveRows) -> None:
    await declare(hand, {"limit": 1}, EACH)
    busy, front, other = [await hand.start("work", f'{{"k": "{key}"}}') for key in "abc"]
    async with rows.locked(front):
        await hand.cancel(busy)
        assert await slots(rows) == {other}
    await hand.cancel(other)
    assert await slots(rows) == {front}
