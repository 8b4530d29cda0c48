"""Step ids: no two calls share one, whatever the user's ids look like (protocol section 7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runr_workflows.step_ids import StepIds

suffix_like = st.from_regex(r"[ab](:[0-9]{1,2}){0,2}", fullmatch=True)


@given(st.lists(suffix_like, max_size=30))
def test_ids_are_unique_stable_and_begin_with_the_users(calls: list[str]) -> None:
    ids, again = StepIds(), StepIds()

    given_ids = [ids.assign(call) for call in calls]

    assert given_ids == [again.assign(call) for call in calls]
    assert len(set(given_ids)) == len(calls)
    assert all(
        step_id == call or step_id.startswith(f"{call}:") for step_id, call in zip(given_ids, calls, strict=True)
    )


def test_a_thousand_repeats_keep_their_whole_suffix() -> None:
    ids = StepIds()

    assert [ids.assign("a" * 200) for _ in range(1001)][-1] == "a" * 200 + ":1000"


@pytest.mark.parametrize("user_id", ["", "  ", "a\0", "\udfff", "a" * 201, "中" * 67])
def test_bad_ids_are_value_errors(user_id: str) -> None:
    with pytest.raises(ValueError, match="step id"):
        StepIds().assign(user_id)
