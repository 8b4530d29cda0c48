r"""Where values stand in a JSON text: the way to take an answer apart without re-encoding a single byte of it.

A user's payload must reach the store and the next request as the function wrote it (big integers, `1.0`, key order,
`\u0000`, lone escapes). So the objects that belong to the protocol are walked here by hand, and every value inside
them is read by the C scanner of `json`, which also tells where the value ends.

The reading is strict: RFC 8259 and no more, no NaN, no duplicate keys at any level, no nesting beyond `MAX_DEPTH`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

MAX_DEPTH = 160
"""Levels of nesting in one text: the 128 of a payload and those that the protocol puts around it."""

_blanks = r"[ \t\n\r]*"
_skip_blanks = re.compile(_blanks).match
_key_of_member = re.compile(rf'{_blanks}"([^"\\\x00-\x1f]*)"{_blanks}:{_blanks}').match
_after_value = re.compile(rf"{_blanks}([,\]}}]){_blanks}").match
_empty_container = re.compile(rf"\{{{_blanks}\}}|\[{_blanks}\]").match
# A string without an end runs to the end of the text: were it no match, every quote behind it would be tried again.
_strings_and_brackets = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL).finditer


class Member(NamedTuple):
    """One value: decoded, and as the text it was written in."""

    value: Any
    text: str


class Shape(NamedTuple):
    """Which members of an object are lists of objects that are to be walked too, and their own shape."""

    lists: dict[str, Shape]


PLAIN = Shape({})
"""An object whose members are all plain values."""


def read_document(text: str, shape: Shape = PLAIN) -> dict[str, Member]:
    """The members of a text that must hold one object and nothing behind it.

    A member named in `shape.lists` whose value is a list of objects has a `value` of type `list[dict[str, Member]]`;
    any other value there is decoded as a plain one. Raises ValueError, whose text says what was expected where.
    """
    check_depth(text)
    start = _skip(text, 0)
    if text[start : start + 1] != "{":
        _refuse("a JSON object", text, start)
    try:
        members, end = _read_object(text, start, shape)
    except RecursionError:
        raise ValueError(f"nested over {MAX_DEPTH} levels deep") from None
    end = _skip(text, end)
    if end != len(text):
        _refuse("the end of the text", text, end)
    return members


def check_depth(text: str) -> None:
    """Raise ValueError where a text is nested deeper than `MAX_DEPTH`."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _strings_and_brackets(text):
        mark = match[0]
        if mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested over {MAX_DEPTH} levels deep")
        elif mark in "]}":
            depth -= 1


def _read_object(text: str, start: int, shape: Shape) -> tuple[dict[str, Member], int]:
    members: dict[str, Member] = {}
    empty = _empty_container(text, start)
    if empty:
        return members, empty.end()
    at = start + 1
    while True:
        key, at = _read_key(text, at)
        if key in members:
            raise ValueError(f"duplicate key {_shown(key)}")
        inner = shape.lists.get(key)
        value, end = _read_list(text, at, inner) if inner and text[at : at + 1] == "[" else _scan(text, at)
        members[key] = Member(value, text[at:end])
        after = _after_value(text, end)
        if after is None or after[1] == "]":
            _refuse("',' or '}'", text, end)
        at = after.end()
        if after[1] == "}":
            return members, at


def _read_list(text: str, start: int, shape: Shape) -> tuple[list[Any], int]:
    elements: list[Any] = []
    empty = _empty_container(text, start)
    if empty:
        return elements, empty.end()
    at = _skip(text, start + 1)
    while True:
        element, at = _read_object(text, at, shape) if text[at : at + 1] == "{" else _scan(text, at)
        elements.append(element)
        after = _after_value(text, at)
        if after is None or after[1] == "}":
            _refuse("',' or ']'", text, at)
        at = after.end()
        if after[1] == "]":
            return elements, at


def _read_key(text: str, at: int) -> tuple[str, int]:
    """The key at `at`, and the index where its value begins."""
    plain = _key_of_member(text, at)
    if plain:
        return plain[1], plain.end()
    at = _skip(text, at)
    if text[at : at + 1] != '"':
        _refuse("a key in double quotes", text, at)
    key, at = _scan(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        _refuse("':'", text, at)
    return key, _skip(text, at + 1)


def _scan(text: str, at: int) -> tuple[Any, int]:
    """Any value at `at`, and the index behind it."""
    try:
        found: tuple[Any, int] = _scan_once(text, at)
    except StopIteration:
        _refuse("a JSON value", text, at)
    return found


def _skip(text: str, at: int) -> int:
    match = _skip_blanks(text, at)
    assert match is not None, "the pattern matches the empty text"
    return match.end()


def _refuse(expected: str, text: str, at: int) -> NoReturn:
    found = _shown(text[at : at + 20]) if at < len(text) else "the end of the text"
    raise ValueError(f"expected {expected} at character {at}, found {found}")


def _shown(text: str) -> str:
    return json.dumps(text[:100])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {_shown(key)}")
            seen.add(key)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_scan_once: Any = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]
