"""The heap of instants: holds what is near, once, and gives it out in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.duties.horizon import MAX_INSTANTS, Horizon

instants = st.tuples(st.integers(0, 200), st.integers(0, 63))


@given(st.lists(instants, max_size=60), st.lists(instants, max_size=60), st.integers(0, 200))
def test_what_is_due_comes_out_once_and_nothing_else(
    read: list[tuple[int, int]], hinted: list[tuple[int, int]], now: int
) -> None:
    horizon = Horizon()
    horizon.replace(read, until_ms=150)
    for due, part in hinted:
        horizon.add(due, part)
    held = set(read) | {(due, part) for due, part in hinted if due <= 150}
    assert len(horizon) == len(held)
    assert horizon.next_ms == min((due for due, _ in held), default=None)
    assert horizon.take_due(now) == {part for due, part in held if due <= now}
    assert horizon.take_due(now) == set()
    assert len(horizon) == sum(due > now for due, _ in held)


@given(st.lists(instants, max_size=30), st.lists(instants, max_size=30))
def test_what_was_hinted_while_the_horizon_was_read_stays(
    hinted: list[tuple[int, int]], read: list[tuple[int, int]]
) -> None:
    horizon = Horizon()
    horizon.replace([], until_ms=200)
    for due, part in hinted:
        horizon.add(due, part)
    horizon.replace(read, until_ms=100)
    near = {(due, part) for due, part in hinted if due <= 100}
    assert len(horizon) == len(near | set(read))


@given(st.lists(instants, min_size=1, max_size=30))
def test_add_tells_whether_the_new_one_is_the_nearest(hinted: list[tuple[int, int]]) -> None:
    horizon = Horizon()
    horizon.replace([], until_ms=200)
    held: set[tuple[int, int]] = set()
    for instant in hinted:
        nearest = instant not in held and all(instant < other for other in held)
        assert horizon.add(*instant) is nearest
        held.add(instant)


def test_it_does_not_grow_without_bound() -> None:
    horizon = Horizon()
    horizon.replace([], until_ms=10 * MAX_INSTANTS)
    for due in range(MAX_INSTANTS + 10):
        horizon.add(due, 0)
    assert len(horizon) == MAX_INSTANTS
