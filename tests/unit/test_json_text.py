"""Payloads as text: strict reading, nothing lost, every refusal with its place."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.errors import InvalidInput, Malformed
from services.core.domain.json_fault import JsonError, JsonSyntaxError, deeper_than
from services.core.domain.json_text import Raw, Reader, compact_size, dump, parse, read_list, read_object

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_parses_what_json_writes(value: Any, ascii_only: bool, indent: int | str | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    assert parse(text.encode()) == value
    assert parse(dump(value)) == value


@given(values)
def test_compact_size_is_that_of_the_compact_form(value: Any) -> None:
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    for text in (json.dumps(value, indent=2), json.dumps(value), compact):
        assert compact_size(text) == len(compact.encode())
        assert compact_size(text) <= len(text.encode())


@given(st.dictionaries(st.text(), values))
def test_members_keep_their_text(value: dict[str, Any]) -> None:
    members = read_object(json.dumps(value, indent=1))

    assert {key: member.value for key, member in members.items()} == value
    assert {key: json.loads(member.text) for key, member in members.items()} == value


blanks = st.sampled_from(["", " ", "\n\t"])
odd = st.sampled_from(["", "x", ",", "{}", '"a":1', '"\\ud800":1', "\ufeff", "NaN", "1e400"])


@given(st.dictionaries(st.text(max_size=4), values, max_size=4), st.booleans(), st.lists(blanks | odd, min_size=5))
def test_the_quick_look_at_an_object_is_that_of_the_walk(
    value: dict[str, Any], ascii_only: bool, between: list[str]
) -> None:
    members = [f"{json.dumps(key)}{between[0]}:{between[1]}{json.dumps(each)}" for key, each in value.items()]
    text = f"{between[2]}{{{f'{between[3]},'.join(members)}}}{between[4]}"
    payload = text.encode(errors="surrogatepass")

    def walked() -> dict[str, Raw]:
        reader = Reader.of(payload)
        return reader.read(reader.raw_members)

    assert ending(lambda: read_object(payload)) == ending(walked)


def ending(read: Callable[[], dict[str, Raw]]) -> Any:
    """What was read, or where and how it was refused."""
    try:
        return str(read())  # by their texts: NaN is not itself
    except JsonError as error:
        return type(error), error.path, error.position


@pytest.mark.parametrize(
    "text", ["1.0", "1e2", "-0", "123456789012345678901234567890", '"\\u0000"', '"\\ud800"', '"\\/"']
)
def test_texts_survive_byte_for_byte(text: str) -> None:
    assert read_object(f' {{ "a" : {text} , "b":[ {text} ]}} ')["a"].text == text
    assert read_list(f"[ {text} ]")[0].text == text


def test_integers_are_exact_and_surrogate_pairs_are_one_character() -> None:
    assert parse("9007199254740993") == 9007199254740993
    assert parse('"\\ud83d\\ude00"') == "\U0001f600"
    assert parse('"\\ud800"') == "\ud800"
    assert dump("\ud800\0é") == '"\\ud800\\u0000é"'


@pytest.mark.parametrize(
    ("text", "position", "path", "words"),
    [
        (b'{"a":1,"a":2}', 7, "a", "twice"),
        (b'{"a":[{"k":1,"k":2}]}', 13, "a[0].k", "twice"),
        (b'{"a":1,"\\u0061":2}', 7, "a", "twice"),
        (b'{"x":[1,NaN]}', 8, "x[1]", "NaN is not JSON"),
        (b"[-Infinity]", 1, "[0]", "-Infinity is not JSON"),
        (b"[1,]", 3, "[1]", "expected a JSON value"),
        (b'{"a":1,}', 7, "a", "double quotes"),
        (b"[1] 2", 4, "", "the end of the text"),
        (b'"\x00"', 1, "", "control character"),
        (b'{"a b":[01]}', 9, '["a b"][0]', "','"),
        (b"\xef\xbb\xbf{}", 0, "", "byte order mark"),
        (b'"\xff"', 1, "", "UTF-8"),
        (b'"\xed\xa0\x80"', 1, "", "UTF-8"),
        (b"", 0, "", "the end of the text"),
        (b'{"a":"\\x"}', 6, "a", "escape"),
        (b"'a'", 0, "", "expected a JSON value"),
    ],
)
def test_what_is_not_json_is_malformed_at_its_place(text: bytes, position: int, path: str, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse(text)

    assert isinstance(refused.value, JsonSyntaxError)
    assert (refused.value.position, refused.value.path) == (position, path)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ('{"a":{"b":[0,1e400]}}', "a.b[1]", "out of range"),
        ("[" + "9" * 5000 + "]", "[0]", "4300 digits"),
        ('{"a":' + "[" * 128 + "]" * 128 + "}", "a[0][0][0][0][0][0][0]", "128 levels"),
    ],
)
def test_what_is_json_but_too_much_is_invalid(text: str, path: str, words: str) -> None:
    with pytest.raises(JsonError) as refused:
        parse(text)

    assert not isinstance(refused.value, Malformed)
    assert refused.value.path == path
    assert words in refused.value.message
    assert refused.value.errors[0].path == path


def test_the_path_begins_where_the_text_stands_in_its_request() -> None:
    with pytest.raises(JsonError) as refused:
        parse('{"n":1e999}', root="events[2].data")

    assert refused.value.path == "events[2].data.n"


@given(values, st.integers(0, 60), st.text('[]{}"\\ a,:1', max_size=60))
def test_a_value_within_a_size_is_the_value_and_a_longer_one_is_not_read(value: Any, most: int, rest: str) -> None:
    text = json.dumps(value)
    reader = Reader(f"{text},{rest}", "", 128)
    if len(text) <= most or isinstance(value, int | float | None):
        assert reader.raw_within(most) == Raw(value, text)
        assert reader.at == len(text)
    elif len(reader.text) > most:
        assert reader.raw_within(most) is None
        assert reader.at == 0


@given(st.text('[]{}"\\ua,:1-e.tn', max_size=40), st.integers(0, 40))
def test_what_is_no_value_is_refused_where_it_is_or_is_too_long(text: str, most: int) -> None:
    whole, part = Reader(text, "", 128), Reader(text, "", 128)
    try:
        wanted = whole.raw()
    except (ValueError, StopIteration) as error:
        with contextlib.suppress(type(error)):
            assert part.raw_within(most) is None
    else:
        fits = len(wanted.text) <= most or len(text) <= most or isinstance(wanted.value, int | float | None)
        assert part.raw_within(most) == (wanted if fits else None)


def test_depth_is_found_in_any_part_of_a_long_text() -> None:
    flat = '["a[[[[", 1], ' * 100_000
    assert not deeper_than(f"[{flat}0]", 2)
    assert deeper_than(f"[{flat}[[0]]]", 2)
    assert not deeper_than("[" + '"", ' * 300_000 + "[0]]", 2)
    assert deeper_than("[" + '"", ' * 300_000 + "[[0]]]", 2)


def test_depth_counts_brackets_outside_of_strings_only() -> None:
    assert parse(json.dumps(["[" * 500, "\\" * 7 + '"' + "{" * 500])) is not None
    assert parse("[" * 128 + "]" * 128) is not None
    with pytest.raises(InvalidInput):
        parse("[" * 100_000)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ue0123-n', max_size=40).map(str.encode))
def test_refuses_exactly_what_the_standard_library_refuses(payload: bytes) -> None:
    wanted, found = _standard(payload), _ours(payload)

    if not isinstance(wanted, float | list | dict) or not _has_infinity(wanted):
        assert found == wanted


def _standard(payload: bytes) -> Any:
    """The value, or an Ellipsis, which no JSON is."""
    try:
        return json.loads(payload.decode(), parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return ...


def _ours(payload: bytes) -> Any:
    try:
        return parse(payload)
    except JsonError as refusal:
        return ... if 0 <= refusal.position <= len(payload) else refusal


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("duplicate")
    return dict(pairs)


def _has_infinity(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_infinity, value.values()))
    if isinstance(value, list):
        return any(map(_has_infinity, value))
    return isinstance(value, float) and math.isinf(value)


@given(st.text('[]{}"\\ a,:1', max_size=80), st.integers(1, 6))
def test_the_quick_look_at_the_depth_never_calls_a_deep_text_flat(text: str, limit: int) -> None:
    depth = deepest = 0
    inside = escaped = False
    for mark in text:
        if inside:
            escaped, inside = (not escaped and mark == "\\"), escaped or mark != '"'
        elif mark == '"':
            inside = True
        elif mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth -= 1
    if deepest > limit:
        assert deeper_than(text, limit)
