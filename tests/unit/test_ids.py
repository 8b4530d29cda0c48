"""ULIDs: both forms name the same id, sort by time, and rise within one process whatever the clock does."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.runtime.ids import UlidFactory, ids_from, ulid_text, ulid_unix_ms, ulid_uuid, uuid_of
from services.core.runtime.pooled_random import PooledRandom


class SetClock:
    """A clock that shows what it is told."""

    def __init__(self, *times: int) -> None:
        self._times = list(times)

    def unix_ms(self) -> int:
        return self._times.pop(0)

    def monotonic(self) -> float:
        return 0.0


@given(st.uuids(), st.uuids())
def test_text_and_uuid_are_the_same_id_and_sort_alike(one: uuid.UUID, other: uuid.UUID) -> None:
    assert ulid_uuid(ulid_text(one)) == one
    assert ulid_uuid(ulid_text(one).lower()) == one
    assert (ulid_text(one) < ulid_text(other)) == (one.int < other.int)


@given(st.integers(0, 2**128 - 1))
def test_an_id_of_a_number_is_the_uuid_that_python_makes_of_it(number: int) -> None:
    made, known = uuid_of(number), uuid.UUID(int=number)
    assert (made, hash(made), str(made), made.is_safe) == (known, hash(known), str(known), known.is_safe)


@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=20), st.integers())
def test_ids_rise_whatever_the_clock_does(times: list[int], seed: int) -> None:
    factory = UlidFactory(SetClock(*times), random.Random(seed))
    made = [factory.new() for _ in times]
    assert made == sorted(set(made))
    assert ulid_unix_ms(made[0]) == times[0]


@given(st.lists(st.tuples(st.integers(0, 2**47), st.integers(1, 200)), min_size=1, max_size=20), st.integers())
def test_ids_in_a_row_are_nobody_elses(wanted: list[tuple[int, int]], seed: int) -> None:
    factory = UlidFactory(SetClock(*(time for time, _ in wanted)), random.Random(seed))
    made = [id for _, count in wanted for id in ids_from(factory.block(count), count)]
    assert made == sorted(set(made))
    assert len(made) == sum(count for _, count in wanted)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=50))
def test_pooled_random_has_as_many_bits_as_are_asked_for(sizes: list[int]) -> None:
    source = PooledRandom()
    drawn = [source.getrandbits(size) for size in sizes]
    assert all(0 <= number < 1 << size for number, size in zip(drawn, sizes, strict=True))
    assert source.getrandbits(8 * 10_000).bit_length() > 8 * 9_000, "more than a pool"
    assert len({source.getrandbits(80) for _ in range(2_000)}) == 2_000
    assert {len(source.hex(count)) for count in (24, 10_000)} == {48, 20_000}
    assert len({source.hex(10) for _ in range(2_000)}) == 2_000
    with pytest.raises(ValueError, match="non-negative"):
        source.getrandbits(-1)


def test_a_full_millisecond_runs_over_into_the_next() -> None:
    class AllOnes(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return (1 << k) - 1

    factory = UlidFactory(SetClock(5, 5), AllOnes())
    assert [ulid_unix_ms(factory.new()) for _ in range(2)] == [5, 6]


def test_known_form() -> None:
    assert ulid_text(uuid.UUID(int=0)) == "0" * 26
    assert ulid_text(uuid.UUID(int=2**128 - 1)) == "7" + "Z" * 25
    assert ulid_unix_ms(ulid_uuid("01ARZ3NDEKTSV4RRFFQ69G5FAV")) == 1_469_922_850_259


@pytest.mark.parametrize(
    "text", ["", "0" * 25, "0" * 27, "8" + "0" * 25, "U" * 26, "0" * 25 + "-", "é" + "0" * 25, "ı" * 26]
)
def test_what_is_no_ulid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a ULID"):
        ulid_uuid(text)
