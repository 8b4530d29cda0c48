"""Expressions in the test kit of the Python SDK, which cannot import the engine's: both say the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from runr_workflows.expression import ExpressionError as KitError
from runr_workflows.expression import condition
from runr_workflows.expression import parse as kit_parse
from runr_workflows.json_values import is_true as kit_is_true
from runr_workflows.json_values import key_of

from services.core.domain.expression import (
    ExpressionError,
    evaluate,
    is_true,
    key_text,
    match_and_if,
    parse,
    parse_joined,
)

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([1.0, 0.5, -0.0, 1e300, 2**53, 2**53 + 1, float(2**53)])
    | st.sampled_from(["", "x", "1", "é", "\N{GRINNING FACE}"])
)
_values: st.SearchStrategy[Any] = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=6
)
_events = st.fixed_dictionaries({"id": st.just("e"), "data": st.dictionaries(st.sampled_from("abc"), _values)})
_words = st.sampled_from(
    [
        *("event", "async", ".data", ".a", ".b", ".c", ".id", '["a"]', "['b']", "[0]", "[1]", "[-1]", "[a]", "."),
        *("==", "!=", "<", "<=", ">", ">=", "&&", "||", "!", "(", ")", "=", "&", "===", "+"),
        *(
            "true",
            "false",
            "null",
            "1",
            "1.0",
            "-2",
            "0.5",
            "01",
            "1e300",
            "1e999",
            "'x'",
            '""',
            '"\\u00e9"',
            "'\\q'",
            "'",
        ),
        *(" ", " ", "\n", "\u00a0", "other"),
    ]
)
_operands = st.sampled_from(
    [
        *("event.data.a", "async.data.a", "event.data.b", "async.data.b", "event.data.c[0]", "async.data.c['a']"),
        *(
            "event",
            "async.id",
            "null",
            "true",
            "false",
            "0",
            "1",
            "1.0",
            "-0.0",
            "9007199254740993",
            "''",
            "'x'",
            '"1"',
        ),
    ]
)
_texts = st.recursive(
    _operands,
    lambda inner: (
        st.builds("!{}".format, inner)
        | st.builds("({})".format, inner)
        | st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||"]), inner)
        | st.builds("({}) {} ({})".format, inner, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner)
    ),
    max_leaves=8,
)


@given(text=_texts | st.lists(_words, max_size=12).map("".join), event=_events, incoming=_events)
def test_an_expression_is_worth_the_same_or_is_refused_by_both(text: str, event: Any, incoming: Any) -> None:
    try:
        tree = parse(text)
    except ExpressionError:
        tree = None
    try:
        kit = kit_parse(text)
    except KitError:
        assert tree is None, text
        return
    assert tree is not None, text
    value, told = evaluate(tree, event=event, async_=incoming), kit((event, incoming))
    assert (type(told), told) == (type(value), value)
    assert kit_is_true(told) is is_true(value)


@given(one=_values, other=_values)
def test_two_values_are_one_key_in_both_or_in_none(one: Any, other: Any) -> None:
    assert (key_of(one) == key_of(other)) is (key_text(one) == key_text(other))
    assert (key_of(one) is None) is (key_text(one) is None)


@given(
    match=st.none() | st.sampled_from(["data.a", "data", "id", 'data["b"]', "data.c[0]", "other", "data.", ""]),
    if_=st.none() | _texts,
    event=_events,
    incoming=_events,
)
def test_a_wait_is_over_by_the_same_events(match: str | None, if_: str | None, event: Any, incoming: Any) -> None:
    try:
        joined = match_and_if(match, if_)
    except ExpressionError:
        joined = "refused"
    try:
        holds = condition(match, if_)
    except KitError:
        assert joined == "refused"
        return
    assert joined != "refused"
    expected = joined is None or is_true(evaluate(parse_joined(joined), event=event, async_=incoming))
    assert holds((event, incoming)) is expected
