"""Turns at something scarce: never more than there are, and no key keeps another from its own."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.runtime.fair_turns import FairTurns, NoTurn


class Holder:
    """Somebody who takes a turn and keeps it until told."""

    def __init__(self, turns: FairTurns, key: str, order: list[str]) -> None:
        self.key = key
        self.let_go = asyncio.Event()
        self.has_it = False
        self.task = asyncio.create_task(self._hold(turns, order))

    async def _hold(self, turns: FairTurns, order: list[str]) -> None:
        async with turns.turn(self.key):
            order.append(self.key)
            self.has_it = True
            await self.let_go.wait()
            self.has_it = False


async def settled() -> None:
    """Everybody on the loop has gone as far as they get."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_key_with_very_many_keeps_no_other_waiting() -> None:
    turns, order = FairTurns(3, each=2), list[str]()
    many = [Holder(turns, "many", order) for _ in range(50)]
    few = [Holder(turns, "few", order) for _ in range(2)]
    await settled()
    assert order == ["many", "many", "few"], "one place is kept free of the many"
    few[0].let_go.set()
    await settled()
    assert order[3:] == ["few"], "it is not theirs either when it comes back"
    many[0].let_go.set()
    few[1].let_go.set()
    await settled()
    assert order[4:] == ["many"]
    for holder in (*many, *few):
        holder.let_go.set()
        await holder.task
    assert Counter(order) == {"many": 50, "few": 2}


async def test_keys_that_wait_are_served_in_turn() -> None:
    turns, order = FairTurns(1, each=1), list[str]()
    holders = [Holder(turns, key, order) for key in "aaaabbc"]
    for _ in holders:
        await settled()
        (now,) = (holder for holder in holders if holder.has_it)
        now.let_go.set()
    await settled()
    assert order == ["a", "a", "b", "c", "a", "b", "a"]


async def test_who_waits_too_long_gives_up_and_holds_nothing() -> None:
    turns, order = FairTurns(1, each=1, patience_s=0.01), list[str]()
    first = Holder(turns, "a", order)
    await settled()
    with pytest.raises(NoTurn):
        async with turns.turn("b"):
            raise AssertionError("it is not ours")
    first.let_go.set()
    async with turns.turn("b"):
        assert order == ["a"]


async def test_a_turn_that_fails_or_is_cancelled_is_given_back() -> None:
    turns = FairTurns(1, each=1)
    with pytest.raises(ZeroDivisionError):
        async with turns.turn("a"):
            raise ZeroDivisionError
    order = list[str]()
    first, second, third = (Holder(turns, key, order) for key in "aba")
    await settled()
    second.task.cancel()
    first.let_go.set()
    await settled()
    assert order == ["a", "a"]
    third.task.cancel()
    await settled()
    async with turns.turn("b"):
        pass


@given(
    slots=st.integers(1, 4),
    each=st.integers(1, 3),
    moves=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["come", "go", "cancel"])), max_size=60),
)
@settings(max_examples=150, deadline=None)
def test_whatever_comes_and_goes_no_place_is_lost_and_none_is_given_twice(
    slots: int, each: int, moves: list[tuple[str, str]]
) -> None:
    async def play() -> None:
        turns, order = FairTurns(slots, each=each), list[str]()
        holders: list[Holder] = []
        for key, move in moves:
            mine = [holder for holder in holders if holder.key == key and not holder.task.done()]
            if move == "come":
                holders.append(Holder(turns, key, order))
            elif mine and move == "go":
                mine[0].let_go.set()
            elif mine:
                mine[-1].task.cancel()
            await settled()
            active = [holder for holder in holders if not holder.task.done()]
            held = Counter(holder.key for holder in active if holder.has_it)
            assert sum(held.values()) <= slots
            assert all(count <= each for count in held.values())
            waiting = {holder.key for holder in active if not holder.has_it}
            if sum(held.values()) < slots:
                assert all(held[key] == each for key in waiting), "a place is free and somebody waits for it"
        for holder in holders:
            holder.let_go.set()
        await asyncio.gather(*(holder.task for holder in holders), return_exceptions=True)
        assert all(holder.task.done() for holder in holders)

    asyncio.run(play())
