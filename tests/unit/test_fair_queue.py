"""A queue that is fair over whom its items are for."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from services.core.runtime.fair_queue import FairQueue

items = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60)


def filled(coming: list[tuple[int, int]]) -> FairQueue[tuple[int, int]]:
    queue: FairQueue[tuple[int, int]] = FairQueue()
    for number, (key, weight) in enumerate(coming):
        queue.put(key, (key, number), weight=weight, now=number)
    return queue


@given(items, st.integers(1, 10), st.integers(0, 20))
def test_everything_is_taken_once_and_each_keys_in_the_order_of_coming(
    coming: list[tuple[int, int]], most: int, most_weight: int
) -> None:
    queue = filled(coming)
    taken: list[tuple[int, int]] = []
    while queue:
        batch = queue.take(most, most_weight)
        weights = [coming[number][1] for _, number in batch]
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(weights) <= most_weight
        taken += batch
    assert queue.weight == 0
    by_key: dict[int, list[int]] = defaultdict(list)
    for key, number in taken:
        by_key[key].append(number)
    assert {key: sorted(numbers) for key, numbers in by_key.items()} == by_key
    assert len(taken) == len(coming)


@given(items, st.integers(1, 12))
def test_no_key_has_more_of_a_batch_than_another_that_waits(coming: list[tuple[int, int]], most: int) -> None:
    queue = filled([(key, 0) for key, _ in coming])
    left = Counter(key for key, _ in coming)
    while queue:
        got = Counter(key for key, _ in queue.take(most, 0))
        left -= got
        assert all(count <= min(got[key] for key in left) + 1 for count in got.values() if left)


def test_one_with_very_many_waits_behind_nobodys_few() -> None:
    queue = filled([(0, 1)] * 1_000 + [(1, 1)] * 3)
    assert Counter(key for key, _ in queue.take(10, 100)) == {0: 7, 1: 3}


@given(items, st.integers(0, 60))
def test_what_is_older_goes_at_once(coming: list[tuple[int, int]], than: int) -> None:
    queue = filled(coming)
    gone = queue.take_older(than)
    assert sorted(number for _, number in gone) == list(range(min(than, len(coming))))
    assert len(queue) == len(coming) - len(gone)
    assert queue.weight == sum(weight for _, weight in coming[than:])
    for key in range(4):
        first = next((number for number, (other, _) in enumerate(coming) if other == key and number >= than), None)
        assert queue.oldest(key) == first
