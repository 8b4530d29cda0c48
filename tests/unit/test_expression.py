"""Expressions, the conditions that waits keep of them, and values as keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.expression import (
    ExpressionError,
    condition_from_json,
    condition_holds,
    condition_to_json,
    evaluate,
    hash_value,
    index_key,
    is_true,
    key_text,
    match_and_if,
    match_expression,
    parse,
    parse_joined,
    roots,
    specialize,
    value_at,
)
from services.core.domain.json_text import JsonValue

EVENT: JsonValue = {"name": "e", "data": {"a": 1, "s": "x", "t": True, "n": None, "list": [1, {"k": 2}], "o k": 5}}
ASYNC: JsonValue = {"name": "a", "data": {"a": 1.0, "s": "y", "t": False, "list": [], "o k": 5}}

GOLDEN_1 = -2014584693841474400
GOLDEN_S1 = 5296657000720955118
GOLDEN_NULL = 8320033950756688494

scalars = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, -0.0]) | st.sampled_from(["", "x", "1"])
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=6
)
keys = st.sampled_from(["a", "s", "t", "n", "list", "missing", "o k"])


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> tuple[str, Any]:
    """An expression's text, and a function of (event, async) that says its value without using the code under test."""
    kind = draw(
        st.sampled_from(["literal", "path"] if depth == 0 else ["path", "!", "()", "&&", "||", "==", "!=", "<"])
    )
    if kind == "literal":
        value = draw(scalars)
        return json.dumps(value), lambda _event, _async: value
    if kind == "path":
        root, key = draw(st.sampled_from(["event", "async"])), draw(keys)
        index = 0 if root == "event" else 1
        return f'{root}.data["{key}"]', lambda *events: events[index]["data"].get(key)
    inner, value_of = draw(trees(depth=depth - 1))
    if kind == "()":
        return f"({inner})", value_of
    if kind == "!":
        return f"!({inner})", lambda *events: not _truth(value_of(*events))
    other, other_of = draw(trees(depth=depth - 1))
    text = f"({inner}) {kind} ({other})"
    operation = {"&&": _both, "||": _either, "==": _equal, "!=": _unequal, "<": _less}[kind]
    return text, lambda *events: operation(value_of(*events), other_of(*events))


@given(trees())
def test_evaluates_as_a_naive_reading_does(tree: tuple[str, Any]) -> None:
    text, value_of = tree

    found = evaluate(parse(text), event=EVENT, async_=ASYNC)

    assert _equal(found, value_of(EVENT, ASYNC))


@given(trees())
def test_a_specialized_condition_decides_as_the_expression_does(tree: tuple[str, Any]) -> None:
    text, value_of = tree
    condition = specialize(parse(text), EVENT)

    stored = condition_to_json(condition)
    assert condition_from_json(stored) == condition
    assert "event" not in roots(condition)
    other: JsonValue = {"data": {"a": 1, "s": "x", "t": True}}
    for incoming in (ASYNC, other):
        assert condition_holds(condition_from_json(stored), incoming) == _truth(value_of(EVENT, incoming))


@given(
    trees(), st.sampled_from(["event.data.a == async.data.a", "'y' == async.data[\"s\"]", "async.data.list == null"])
)
def test_an_event_that_fulfils_the_condition_is_found_by_its_index_key(tree: tuple[str, Any], equality: str) -> None:
    condition = specialize(parse(f"({tree[0]}) && {equality}"), EVENT)
    key = index_key(condition)

    other: JsonValue = {"data": {"a": 1, "s": "y"}}
    for incoming in (ASYNC, other):
        if condition_holds(condition, incoming):
            assert key is not None
            assert hash_value(value_at(key[0], incoming)) == key[1]


def test_the_index_key_of_a_match() -> None:
    condition = specialize(parse(match_expression('data["o k"].ids[0]')), {"data": {"o k": {"ids": [7]}}})

    assert index_key(condition) == ('data["o k"].ids[0]', hash_value(7))
    assert value_at('data["o k"].ids[0]', {"data": {"o k": {"ids": [7]}}}) == 7
    assert value_at("data.a.b", {"data": {"a": {"b": [1]}}}) == [1]


@pytest.mark.parametrize(
    "text", ["async.data.a > 1", "async.data.a == async.data.b", "async.data.a == 1 || true && async", "!async"]
)
def test_no_index_key_without_a_certain_equality(text: str) -> None:
    assert index_key(specialize(parse(text), EVENT)) is None


def test_a_missing_value_is_indexed_as_null() -> None:
    condition = specialize(parse(match_expression("data.order_id")), {"data": {}})

    assert index_key(condition) == ("data.order_id", hash_value(None))
    assert condition_holds(condition, {"data": {}})
    assert not condition_holds(condition, {"data": {"order_id": "o-1"}})


@given(values, values)
def test_equal_values_share_key_and_hash_and_others_do_not(one: Any, other: Any) -> None:
    equal = _equal(one, other)

    assert (key_text(one) == key_text(other)) == equal
    assert (hash_value(one) == hash_value(other)) == equal
    assert evaluate(parse("event == async"), event=one, async_=other) is equal
    assert -(2**63) <= hash_value(one) < 2**63


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "n:1"),
        (1.0, "n:1"),
        ("1", "s:1"),
        (True, "b:true"),
        ("true", "s:true"),
        (-0.0, "n:0"),
        (1e22, "n:10000000000000000000000"),
        (0.5, "n:0.5"),
        ([1.0, {"b": 1, "a": "é"}], 'j:[1,{"a":"\\u00e9","b":1}]'),
        ("a\0b", 'j:"a\\u0000b"'),
        ("\ud800", 'j:"\\ud800"'),
        ("", "s:"),
        (None, None),
    ],
)
def test_key_text(value: Any, text: str | None) -> None:
    assert key_text(value) == text


def test_hashes_are_the_same_in_every_release() -> None:
    assert hash_value("o-123") == hash_value("o-123")
    assert [hash_value(value) for value in (1, "1", None)] == [GOLDEN_1, GOLDEN_S1, GOLDEN_NULL]


def test_deep_values_are_compared_without_recursion() -> None:
    one: Any = 1
    for _ in range(50_000):
        one = {"a": [one]}
    other: JsonValue = {"a": [2]}

    assert evaluate(parse("event == event"), event=one) is True
    assert evaluate(parse("event == async"), event=one, async_=other) is False


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("  event.data.a\n==\t1 ", True),
        ("event.data.a==1&&!event.data.n", True),
        ("event . data [ 'o k' ] == 5", True),
        ("event.data.list[1].k == 2", True),
        ("event.data.list[9] == null", True),
        ("event['data']['a'] == 1", True),
        ("event == null", False),
        ('"\\u0130" == "İ"', True),
        ('"\\ud83d\\ude00" == "😀"', True),
        ("'\\\\\\'\\\"\\n' == \"\\\\'\\\"\\n\"", True),
        ("1e2 == 100 && 1.5e-1 == 0.15 && -0 == 0", True),
        ("123456789012345678901234567890 == 123456789012345678901234567891", False),
        ("123456789012345678901234567890 < 123456789012345678901234567891", True),
        ("9007199254740993 > 9007199254740992.0", True),
        ("'\ud7ff' < '\U00010000' && '\uffff' < '\U00010000'", True),
        ("true == true && (1 < 2) == true", True),
        ("'' || 0 || null || false", False),
        ("event.data.s && 'x'", True),
    ],
)
def test_syntax_and_comparisons(text: str, value: bool) -> None:
    assert evaluate(parse(text), event=EVENT) is value


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "expected a value"),
        ("   ", 3, "expected a value"),
        ("event.data.total = 100", 17, "expected =="),
        ("event.data.order-id == 1", 16, "other keys stand in"),
        ("event.data.0", 11, "a name after '.'"),
        ("event.data[-1]", 11, "an index from 0"),
        ("event.data[1.0]", 11, "an index from 0"),
        ("event.data[01]", 11, "a number as JSON"),
        ("event.data[0", 12, "']'"),
        ("(event.data.a", 13, "')'"),
        ("(event).data", 7, "an operator or the end"),
        ("'abc'.length", 5, "an operator or the end"),
        ("1 < 2 < 3", 6, "do not chain"),
        ("1 == 1e400", 5, "out of range"),
        ("'a\\x'", 2, "unknown escape"),
        ("'a\\u12'", 2, "unknown escape"),
        ("'a\nb'", 0, "control character"),
        ("'abc", 0, "no closing '"),
        ("'abc\\'", 0, "no closing '"),
        ("event data", 6, "an operator or the end"),
        ("a.b == 1", 0, "event, async"),
        ("1 && ", 5, "expected a value"),
        ("event.data.a in [1]", 13, "an operator or the end"),
        ("not event", 0, "event, async"),
        ("event?.data", 5, "unexpected '?'"),
        ("event.data.é", 11, "unexpected '\\xe9'"),
        ("event\u2028", 5, "unexpected"),
        ("event\x0b", 5, "unexpected"),
        ("'\ud800'", 0, "lone surrogate"),
        ("!" * 33 + "true", 32, "deeper than 32"),
        ("(" * 33 + "true" + ")" * 33, 32, "deeper than 32"),
        ("1" * 1001, 1000, "at most 1000"),
    ],
)
def test_refusals_say_where_and_what_was_expected(text: str, position: int, words: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse(text)

    assert refused.value.position == position
    assert words in refused.value.message
    assert f"at character {position + 1}:" in refused.value.message


@pytest.mark.parametrize("value", [None, 1, True, ["event"], {}])
def test_only_strings_are_expressions(value: object) -> None:
    with pytest.raises(ExpressionError):
        parse(value)
    with pytest.raises(ExpressionError):
        match_expression(value)


def test_the_limits_themselves_are_allowed() -> None:
    assert evaluate(parse("!" * 32 + "true")) is True
    assert evaluate(parse("(" * 32 + "true" + ")" * 32)) is True
    assert len("||".join(["0"] * 334)) == 1000
    assert evaluate(parse("||".join(["0"] * 334))) is False


@given(st.text(alphabet="eventasync.data[]()'\"\\!=<>&|0123456789 \n-", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    found = _value_or_position(text)

    assert found is True or found is False or 0 <= found <= len(text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("data.order_id", "event.data.order_id == async.data.order_id"),
        ("name", "event.name == async.name"),
        ("data['a b'][0].c", 'event.data["a b"][0].c == async.data["a b"][0].c'),
    ],
)
def test_match_is_short_for_an_equality(path: str, text: str) -> None:
    assert match_expression(path) == text
    assert match_and_if(path, None) == text
    assert parse(text) == parse_joined(text)


@pytest.mark.parametrize("key", ['a"b', "a\\b", "\b\f\n\r\t\0\x1f", "\\b", "ü", "\U0001f600", "0", ""])
def test_a_match_on_any_key(key: str) -> None:
    units = key.encode("utf-16-be").hex()
    path = 'data["' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"]'

    tree = parse(match_expression(path))

    assert evaluate(tree, event={"data": {key: "x"}}, async_={"data": {key: "x"}}) is True
    assert evaluate(tree, event={"data": {key: "x"}}, async_={"data": {}}) is False


@pytest.mark.parametrize(
    "path", ["event.data.a", "async.data.a", "order_id", "", "data.", "data.a == 1", "['data']", "5"]
)
def test_match_paths_that_no_event_has_are_refused(path: str) -> None:
    with pytest.raises(ExpressionError):
        match_expression(path)


def test_match_and_if_must_both_hold_whatever_the_if_is() -> None:
    text = match_and_if("data.a", "async.data.x == 1 || async.data.y == 1")
    assert text is not None
    tree = parse_joined(text)

    def holds(incoming: Any) -> bool:
        return is_true(evaluate(tree, event={"data": {"a": 1}}, async_={"data": incoming}))

    assert holds({"a": 1, "y": 1})
    assert not holds({"a": 2, "y": 1})
    assert not holds({"a": 1})
    assert match_and_if(None, None) is None
    long_if = "(" * 32 + "true" + ")" * 32 + " " * 900
    assert parse_joined(str(match_and_if("data." + "a" * 900, long_if)))


@pytest.mark.parametrize(
    ("text", "found"),
    [("1", set()), ("event.a", {"event"}), ("!async == (event || 1)", {"event", "async"}), ("async && 1", {"async"})],
)
def test_roots(text: str, found: set[str]) -> None:
    assert roots(parse(text)) == found


def _value_or_position(text: str) -> bool | int:
    try:
        return is_true(evaluate(parse(text), event=EVENT, async_=ASYNC))
    except ExpressionError as refusal:
        return refusal.position


def _truth(value: Any) -> bool:
    return value not in (None, False, 0, "") or isinstance(value, list | dict)


def _both(one: Any, other: Any) -> bool:
    return _truth(one) and _truth(other)


def _either(one: Any, other: Any) -> bool:
    return _truth(one) or _truth(other)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return _type(one) == _type(other) and bool(one == other)


def _unequal(one: Any, other: Any) -> bool:
    return not _equal(one, other)


def _less(one: Any, other: Any) -> bool:
    return _type(one) == _type(other) and _type(one) in ("number", "str") and bool(one < other)


def _type(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if number else type(value).__name__
