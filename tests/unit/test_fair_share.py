"""How the slots of an executor are shared among tenants (rulings P8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor import fair_share
from services.executor.fair_share import Turns, even_share, excess, more, shares
from services.executor.lease import Lease
from services.executor.slots import Slots
from tests.support.builders import lease
from tests.support.engine import HandClock

HELD = st.dictionaries(st.integers(1, 9), st.integers(1, 60), max_size=9)
WAITING = st.lists(st.integers(1, 12), unique=True, max_size=12)


@given(HELD, WAITING, st.integers(0, 80), st.integers(0, 80))
def test_shares_are_free_slots_and_nobody_with_less_is_passed_over(
    held: dict[int, int], waiting: list[int], free: int, most: int
) -> None:
    found = shares(held, waiting, free, most)
    given_away = sum(found.values())
    assert given_away <= min(free, most)
    assert found.keys() <= set(waiting)
    after = {tenant: held.get(tenant, 0) + found.get(tenant, 0) for tenant in waiting}
    for tenant in found:
        assert after[tenant] <= 1 + min(after.values())
    if given_away < min(free, most) and waiting:
        assert min(after.values()) >= 7 * (free - given_away), "what is left is for those who hold less"


@given(st.integers(0, 300), st.integers(0, 300))
def test_what_one_may_take_is_what_it_gets_when_it_is_alone(held: int, free: int) -> None:
    assert more(held, free) == shares({1: held}, [1], free, free).get(1, 0)


@given(st.integers(8, 300), st.integers(1, 5))
def test_there_is_room_for_the_next_tenant_however_much_the_others_want(size: int, tenants: int) -> None:
    held: dict[int, int] = {}
    for tenant in range(tenants):
        free = size - sum(held.values())
        held |= shares(held, [tenant], free, free)
    if tenants == 1 or (size >= 64 and tenants == 2):
        assert size > sum(held.values())
    assert sum(held.values()) <= size


def test_one_alone_gets_seven_eighths_and_two_get_the_same() -> None:
    assert shares({}, [1], 256, 256) == {1: 224}
    assert shares({}, [1, 2], 256, 256) == {1: 120, 2: 119}
    assert (even_share(256, 1), even_share(256, 2), even_share(256, 5_000)) == (224, 119, 1)
    assert shares({}, [1], 1, 1) == {1: 1}


@given(HELD, WAITING, st.integers(8, 300), st.integers(0, 30))
def test_room_is_made_by_who_has_more_than_an_even_share_for_who_has_less(
    held: dict[int, int], waiting: list[int], size: int, coming: int
) -> None:
    asked = excess(held, waiting, size, coming)
    even = even_share(size, len(set(waiting) | held.keys()))
    for tenant, count in asked.items():
        assert 0 < count <= held[tenant] - even
    wanted = sum(max(0, even - held.get(tenant, 0)) for tenant in waiting) - coming
    assert sum(asked.values()) == max(0, min(wanted, sum(max(0, has - even) for has in held.values())))


def filled(slots: Slots, *tenants: int) -> list[Lease]:
    leases = [lease(tenant=tenant) for tenant in tenants]
    for each in leases:
        slots.take(each)
    return leases


def leaving(leases: list[Lease]) -> list[int]:
    return [place for place, each in enumerate(leases) if each.leave]


def test_those_that_were_held_longest_make_room_and_are_asked_once() -> None:
    slots = Slots(8, HandClock())
    leases = filled(slots, *[1] * 7)
    slots.make_room({2})
    assert leaving(leases) == [], "there is a free slot that it may take"
    filled(slots, 2)
    slots.make_room({2})
    assert leaving(leases) == [0, 1], "two share eight slots: three each"
    slots.make_room({2})
    assert leaving(leases) == [0, 1]
    for each in leases[:2]:
        slots.give_back(each)
    assert (slots.free, dict(slots.held)) == (2, {1: 5, 2: 1})


def test_where_everybody_has_one_slot_those_without_get_turns() -> None:
    clock = HandClock()
    slots = Slots(3, clock)
    leases = filled(slots, 1, 2, 3)
    slots.make_room({4})
    assert leaving(leases) == [], "nobody is asked before it has had its turn"
    clock.seconds += 1.5
    slots.make_room({4})
    assert leaving(leases) == [0]
    slots.make_room({4})
    assert leaving(leases) == [0]


@given(st.lists(st.sets(st.integers(1, 5), min_size=1), min_size=1, max_size=60))
def test_who_goes_on_waiting_is_first_after_one_turn_of_each_other(looks: list[set[int]]) -> None:
    """Whoever else comes and goes: tenant 0 waits at each look, at which one is served."""
    turns = Turns()
    passed: list[int] = []
    for others in looks:
        first, *_ = turns.order([*others, 0])
        turns.served([first])
        if first == 0:
            passed.clear()
        else:
            passed.append(first)
        assert len(passed) == len(set(passed)), "nobody is served twice before it"


def test_only_the_tenants_that_were_served_last_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_share, "_MOST_SERVED", 2)
    turns = Turns()
    for tenant in (1, 2, 3):
        turns.served([tenant])
    assert turns.order([3, 2, 1]) == [1, 2, 3]
    turns.served([1, 2])
    assert turns.order([1, 3]) == [3, 1]
