"""Lists in windows: whatever the filter and the pages, every wanted id once and in order, at a bounded cost a page."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from services.core.store.id_range import END, end_id, first_id
from services.core.store.windows import walk

ROUNDS = 10


class Rows:
    """A table with these ids, of which every `every`-th is wanted."""

    def __init__(self, ids: Sequence[int], every: int) -> None:
        self.ids = sorted(ids, reverse=True)
        self.wanted = [id for id in self.ids if id % every == 0]
        self.every = every
        self.reads = 0

    async def source(self, below: UUID, window: int) -> list[UUID]:
        self.reads += 1
        return [UUID(int=id) for id in self.ids if id < below.int][:window]

    async def sieve(self, seen: Sequence[UUID], count: int) -> list[UUID]:
        return [id for id in seen if id.int % self.every == 0][:count]


@given(
    ids=st.sets(st.integers(0, 2_000), max_size=400),
    every=st.integers(1, 300),
    limit=st.integers(1, 20),
    max_window=st.integers(1, 50),
)
async def test_all_pages_together_hold_what_is_wanted(ids: set[int], every: int, limit: int, max_window: int) -> None:
    rows = Rows(list(ids), every)
    found: list[int] = []
    below: UUID | None = END
    while below is not None:
        rows.reads = 0
        page, below = await walk(rows.source, rows.sieve, below=below, limit=limit, max_window=max_window)
        assert len(page) <= limit
        assert rows.reads <= ROUNDS
        found += [id.int for id in page]
    assert found == rows.wanted


async def test_a_full_page_with_nothing_behind_it_is_the_last() -> None:
    rows = Rows(range(3), 1)
    page, following = await walk(rows.source, rows.sieve, below=END, limit=3)
    assert (len(page), following) == (3, None)


@given(created_ms=st.integers(0, 2**47), late_ms=st.integers(0, 59_000), early_ms=st.integers(0, 4_900))
def test_an_id_made_around_its_creation_is_in_range_of_it(created_ms: int, late_ms: int, early_ms: int) -> None:
    for made_ms in (max(0, created_ms - late_ms), created_ms + early_ms):
        id = UUID(int=(made_ms << 80) + 5)
        assert first_id(created_ms) <= id < end_id(created_ms + 1)
