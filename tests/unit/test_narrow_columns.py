"""A column that holds the same everywhere travels as one value, and any other as it is; the first as it is anyhow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.core.store.batch import columns, narrowed

_ROWS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from((None, 1, 2)), st.sampled_from(("a", "b"))), max_size=6)


@given(_ROWS)
def test_narrow_columns_hold_what_the_columns_hold(rows: list[tuple[int, int | None, str]]) -> None:
    whole = columns(rows, 3)
    first, *others = narrowed(whole)
    assert first == whole[0]
    for narrow, column in zip(others, whole[1:], strict=True):
        assert (narrow if len(narrow) == len(rows) else narrow * len(rows)) == column
        assert len(narrow) == (1 if len(rows) > 1 and len(set(column)) == 1 else len(rows))
