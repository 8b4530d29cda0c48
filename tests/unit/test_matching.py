"""How waits are indexed, and how an event finds them again: whatever holds is always found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.domain.expression import match_and_if, value_at
from services.core.domain.json_value import hash_value
from services.core.domain.matching import (
    NAME_ALONE,
    SCAN,
    equal_text,
    event_value,
    holds,
    lookup_keys,
    name_hash,
    wait_key,
    wait_warnings,
)


def event(data: Any, name: str = "paid") -> dict[str, Any]:
    return event_value(id="01J", name=name, data=json.dumps(data), ts=5)


def found(condition: str | None, trigger: Any, incoming: Any, paths: list[str] | None = None) -> bool:
    """Whether the index leads the incoming event to the wait; `paths` are those known beside the wait's own."""
    key = wait_key("paid", condition, event(trigger))
    known = [*(paths or []), *([key.path] if key.path is not None else [])]
    return (key.path_h, key.val_h) in lookup_keys(event(incoming), hashed(known))


def hashed(paths: list[str]) -> list[tuple[str, int]]:
    return [(path, hash_value(path)) for path in paths]


def hit(condition: str | None, trigger: Any, incoming: Any) -> bool:
    key = wait_key("paid", condition, event(trigger))
    return found(condition, trigger, incoming) and holds(key.condition, event(incoming))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "a", "1", "true", "\0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["k", "l"]), inner, max_size=2),
    max_leaves=4,
)
CONDITIONS = st.sampled_from(
    [
        match_and_if("data.k", None),
        match_and_if("data.k", "async.data.l != 1"),
        match_and_if("data.k.l", None),
        match_and_if("data.k[0]", None),
        'async.data.k == event.data["l"]',
        "1 == async.data.k",
        "async.data.k == async.data.l",
        "async.data.k == event.data.k || async.data.l == event.data.l",
        "!(async.data.k == event.data.k)",
        "async.data.k > event.data.k",
        "async.data.l > 0 && async.data.k == event.data.k",
        "event.data.k == 1",
        "async.data.k",
        "async == event.data.k",
        None,
    ]
)
OBJECTS = st.dictionaries(st.sampled_from(["k", "l"]), VALUES, max_size=2)


@given(condition=CONDITIONS, trigger=OBJECTS, incoming=OBJECTS)
@settings(max_examples=400, deadline=None)
def test_the_index_never_hides_a_wait_whose_condition_holds(condition: str | None, trigger: Any, incoming: Any) -> None:
    key = wait_key("paid", condition, event(trigger))
    if holds(key.condition, event(incoming)):
        assert found(condition, trigger, incoming, paths=["data.other", "data.k[7]"])


@given(condition=CONDITIONS, trigger=OBJECTS, incoming=OBJECTS)
@settings(max_examples=400, deadline=None)
def test_a_condition_of_the_text_of_an_equality_needs_no_judge(
    condition: str | None, trigger: Any, incoming: Any
) -> None:
    key = wait_key("paid", condition, event(trigger))
    if key.path is None:
        return
    value = value_at(key.path, event(incoming))
    text = equal_text(key.path, value)
    if text == key.condition:
        assert holds(key.condition, event(incoming))
    elif condition == match_and_if("data.k", None) and not isinstance(value, list | dict):
        assert not (type(value) is type(trigger.get("k")) and holds(key.condition, event(incoming)))


@pytest.mark.parametrize(
    "condition",
    [
        "async.data.k > 1",
        "async.data.k == async.data.l",
        "async.data.k == 1 || async.data.l == 1",
        "!(async.data.k == 1)",
        "async.data.k != 1",
        "async.data.k",
        "event.data.k == 1",
    ],
)
def test_a_condition_without_an_equality_is_scanned_by_name(condition: str | None) -> None:
    key = wait_key("paid", condition, event({"k": 1}))
    assert (key.path_h, key.val_h) == SCAN
    assert key.path is None
    assert key.name_h == name_hash("paid")


def test_a_wait_without_a_condition_is_found_by_the_name_alone() -> None:
    key = wait_key("paid", None, event({"k": 1}))
    assert (key.path_h, key.val_h, key.condition) == (*NAME_ALONE, None)
    assert hit(None, {"k": 1}, {})


def test_a_condition_is_kept_for_the_run_it_waits_in_and_needs_its_trigger_no_more() -> None:
    key = wait_key("paid", "async.data.k == event.data.k", event({"k": "o-1"}))
    assert key.path == "data.k"
    assert key.condition is not None
    assert "event" not in key.condition
    assert holds(key.condition, event({"k": "o-1"}))
    assert not holds(key.condition, event({"k": "o-2"}))


def test_case_18_null_equals_null_where_both_sides_lack_the_value() -> None:
    condition = match_and_if("data.order_id", None)
    assert hit(condition, {}, {})
    assert hit(condition, {}, {"order_id": None})
    assert not hit(condition, {}, {"order_id": "o-1"})


@pytest.mark.parametrize(
    ("condition", "warned"),
    [
        (None, False),
        ("event.data.k == async.data.k", True),
        ("async.data.k == event.data.k", True),
        ("event.data.k == async.data.k && (async.data.n > 1)", True),
        ("event.data.there == async.data.there", False),
        ("async.data.k == null", False),
        ("event.data.k == null", False),
        ("event.data.k != async.data.k", False),
        ("event.data.k == async.data.k || async.data.n > 1", False),
    ],
)
def test_a_match_that_compares_with_null_is_told(condition: str | None, warned: bool) -> None:
    assert bool(wait_warnings(condition, {"data": {"there": False}})) is warned


@pytest.mark.parametrize(("left", "right"), [(1, "1"), (1, True), ("true", True), (0, False), ("", None), (0, None)])
def test_case_14_values_of_different_types_never_meet(left: Any, right: Any) -> None:
    condition = match_and_if("data.k", None)
    assert not hit(condition, {"k": left}, {"k": right})
    assert not hit(condition, {"k": right}, {"k": left})


def test_one_and_one_point_zero_meet_and_so_do_integers_beyond_a_float() -> None:
    condition = match_and_if("data.k", None)
    assert hit(condition, {"k": 1}, {"k": 1.0})
    assert hit(condition, {"k": 10**30}, {"k": 10**30})
    assert not hit(condition, {"k": 2**53}, {"k": 2**53 + 1})


def test_a_hash_only_finds_and_the_condition_decides() -> None:
    key = wait_key("paid", "async.data.k == event.data.k && async.data.l == event.data.l", event({"k": 1, "l": 2}))
    assert (key.path_h, key.val_h) in lookup_keys(event({"k": 1, "l": 3}), hashed(["data.k"]))
    assert not holds(key.condition, event({"k": 1, "l": 3}))


@pytest.mark.parametrize("name", ["a\0b", "ä" * 450, "\\"], ids=["NUL", "long", "backslash"])
def test_a_path_that_no_index_takes_is_scanned_and_still_decides(name: str) -> None:
    condition = f'async.data["{name}"] == event.data.k'.replace("\0", "\\u0000").replace('"\\"', '"\\\\"')
    key = wait_key("paid", condition, event({"k": 1}))
    assert key.condition is not None
    assert "\0" not in key.condition + (key.path or "")
    assert len((key.path or "").encode()) <= 500
    assert hit(condition, {"k": 1}, {name: 1})
    assert not hit(condition, {"k": 1}, {name: 2})
