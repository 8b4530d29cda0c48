"""Payloads of users as JSON text: read strictly, kept byte for byte (engine section 6).

A payload is stored and delivered as the text that arrived, so that big integers, `1.0`, key order, `\\u0000` and lone
escapes survive. What is decoded beside it is for rules and conditions only. Refused are duplicate keys at any level, a
byte order mark, NaN and Infinity, numbers that no double holds (1e400), invalid UTF-8 and nesting over 128 levels.

Reading costs one pass of the C scanner of `json`; only a text that is refused is walked again, to say where and why.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import msgspec

from services.core.domain.json_fault import MAX_DEPTH, JsonSyntaxError, deeper_than, explain

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
"""A decoded value. Strings may hold NUL and lone surrogates: see `text_rule` before one becomes a column."""

T = TypeVar("T")

_TOKEN = 12


class Raw(NamedTuple):
    """One value of a text: decoded, and as it was written."""

    value: JsonValue
    text: str


def parse(payload: bytes | str, *, root: str = "", max_depth: int = MAX_DEPTH) -> JsonValue:
    """The value of a text that holds exactly one. Raises JsonError with position and path, which begins with `root`."""
    if isinstance(payload, str) and payload.isascii() and _is_flat(payload, max_depth):
        try:
            value, end = scan_value(payload, 0)
            if end == len(payload):
                return cast(JsonValue, value)
        except (ValueError, StopIteration):
            pass  # the walk says what is wrong, or that it begins with blanks
    reader = Reader.of(payload, root=root, max_depth=max_depth)
    return reader.read(reader.raw).value


def read_object(payload: bytes | str, *, root: str = "", max_depth: int = MAX_DEPTH) -> dict[str, Raw]:
    """The members of a text that must hold one object, each with its own text. Raises JsonError."""
    plain = _plain_object(payload, max_depth) if isinstance(payload, bytes) else None
    if plain is not None:
        return plain
    reader = Reader.of(payload, root=root, max_depth=max_depth)
    return reader.read(reader.raw_members)


def read_list(payload: bytes | str, *, root: str = "", max_depth: int = MAX_DEPTH) -> list[Raw]:
    """The elements of a text that must hold one list, each with its own text. Raises JsonError."""
    reader = Reader.of(payload, root=root, max_depth=max_depth)
    return reader.read(reader.raw_elements)


def dump(value: JsonValue) -> str:
    """Compact JSON text of a value, as UTF-8 text where UTF-8 can say it; lone surrogates and NUL stay escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _surrogate.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def compact_size(text: str) -> int:
    """Bytes of UTF-8 of a valid JSON text without blanks and without needless escapes.

    Numbers count as written; an escaped character counts as the character, unless JSON demands the escape. It is never
    more than the bytes of the text itself, so a caller whose text is within a limit need not ask.
    """
    saved = sum(_saved_by(match[0]) for match in _string_or_blanks(text))
    return len(text.encode()) - saved


class Reader:
    """Walks the protocol's own objects by hand and reads each value inside them with the C scanner.

    A text of known shape is so decoded once, and every value keeps its text: `reader.read(walk)`.
    """

    __slots__ = ("at", "max_depth", "root", "text")

    def __init__(self, text: str, root: str, max_depth: int) -> None:
        self.text = text
        self.root = root
        self.max_depth = max_depth
        self.at = 0

    @classmethod
    def of(cls, payload: bytes | str, *, root: str = "", max_depth: int = MAX_DEPTH) -> Reader:
        """A reader at the start of a payload. Raises JsonSyntaxError for a byte order mark and for invalid UTF-8."""
        return cls(payload_text(payload, root=root), root, max_depth)

    def read(self, walk: Callable[[], T]) -> T:
        """What `walk` returns for the whole text. Raises JsonError, with position and path of the fault."""
        if deeper_than(self.text, self.max_depth):
            raise explain(self.text, None, max_depth=self.max_depth, root=self.root)
        try:
            self._skip()
            found = walk()
            if self.at != len(self.text):
                raise json.JSONDecodeError("expected the end of the text", self.text, self.at)
        except (ValueError, StopIteration) as error:
            raise explain(self.text, error, max_depth=self.max_depth, root=self.root) from None
        return found

    def opens(self, bracket: str) -> bool:
        """Whether the value here begins with this bracket."""
        return self.text.startswith(bracket, self.at)

    def raw(self) -> Raw:
        """The value here, and go behind it."""
        start = self.at
        value, end = scan_value(self.text, start)
        self.at = end
        self._skip()
        return Raw(value, self.text[start:end])

    def raw_within(self, most: int) -> Raw | None:
        """As `raw`; None, without going on, for an object, list or string of more than `most` characters: it is not
        decoded, since the value of few bytes on the wire may take a hundred times as many here.
        """
        start = self.at
        # A number that is cut would be another number.
        if len(self.text) - start <= most or self.text[start] not in '{["':
            return self.raw()
        window = self.text[start : start + most + 1]
        try:
            value, end = scan_value(window, 0)
        except (ValueError, StopIteration) as error:
            if _is_cut(window, error):
                return None
            return self.raw()  # which fails at the same place of the whole text
        if end > most:
            return None
        self.at = start + end
        self._skip()
        return Raw(value, window[:end])

    def raw_members(self) -> dict[str, Raw]:
        """The object here, each member with its own text."""
        return self.members(lambda _: self.raw())

    def raw_elements(self) -> list[Raw]:
        """The list here, each element with its own text."""
        return self.elements(self.raw)

    def members(self, read: Callable[[str], T]) -> dict[str, T]:
        """The object here; `read` is called with each key and must consume its value."""
        found: dict[str, T] = {}
        self._expect("{", "an object")
        if self._took("}"):
            return found
        while True:
            if not self.opens('"'):
                self._fail("expected a key in double quotes")
            key, self.at = scan_value(self.text, self.at)
            self._skip()
            self._expect(":", "':'")
            if key in found:
                raise _Refused
            found[key] = read(key)
            if self._took("}"):
                return found
            self._expect(",", "',' or '}'")

    def elements(self, read: Callable[[], T]) -> list[T]:
        """The list here; `read` is called for each element and must consume it."""
        found: list[T] = []
        self._expect("[", "a list")
        if self._took("]"):
            return found
        while True:
            found.append(read())
            if self._took("]"):
                return found
            self._expect(",", "',' or ']'")

    def _took(self, mark: str) -> bool:
        if not self.opens(mark):
            return False
        self.at += 1
        self._skip()
        return True

    def _expect(self, mark: str, words: str) -> None:
        if not self._took(mark):
            self._fail(f"expected {words}")

    def _fail(self, message: str) -> NoReturn:
        raise json.JSONDecodeError(message, self.text, self.at)

    def _skip(self) -> None:
        if not self.text[self.at : self.at + 1].isspace():
            return
        match = _blanks(self.text, self.at)
        assert match is not None, "the pattern matches the empty text"
        self.at = match.end()


def payload_text(payload: bytes | str, *, root: str = "") -> str:
    """The text of a payload. Raises JsonSyntaxError for a byte order mark and for what is not UTF-8."""
    try:
        text = payload.decode() if isinstance(payload, bytes) else payload
        if not isinstance(payload, bytes) and not text.isascii():
            text.encode()
    except UnicodeDecodeError as error:
        raise JsonSyntaxError("is not UTF-8", error.start, root) from None
    except UnicodeEncodeError as error:
        raise JsonSyntaxError("holds a lone surrogate that is not escaped", error.start, root) from None
    if text.startswith("\ufeff"):
        raise JsonSyntaxError("begins with a byte order mark", 0, root)
    return text


def _plain_object(payload: bytes, max_depth: int) -> dict[str, Raw] | None:
    """The members of an object in which nothing is wrong and nothing odd, by two passes in C; None otherwise."""
    try:
        text = payload.decode()
        if not _is_flat(text, max_depth):
            return None
        value, end = scan_value(text, 0)
        if end != len(text) or not isinstance(value, dict):
            return None
        return {key: Raw(value[key], bytes(raw).decode()) for key, raw in _raw_members(payload).items()}
    except (ValueError, StopIteration, msgspec.MsgspecError):
        return None


def _is_flat(text: str, max_depth: int) -> bool:
    return text.count("{") + text.count("[") <= max_depth


def _is_cut(window: str, error: Exception) -> bool:
    """Whether a scan failed because the text ends, and not for what is in it. The longest token that a scan takes
    apart, a pair of escapes, has twelve characters.
    """
    if isinstance(error, json.JSONDecodeError):
        return error.msg.startswith("Unterminated string") or error.pos >= len(window) - _TOKEN
    return isinstance(error, StopIteration) and error.value >= len(window) - _TOKEN


class _Refused(ValueError):
    """The text is refused for a reason that a second walk finds again, with its place."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused
    return value


def _finite(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise _Refused
    return number


def _no_constant(_name: str) -> NoReturn:
    raise _Refused


def _saved_by(token: str) -> int:
    """Bytes that a string or a run of blanks loses in the compact form."""
    if token[0] != '"':
        return len(token)
    if "\\" not in token:
        return 0
    shortest = json.dumps(json.loads(token), ensure_ascii=False)
    escaped = sum(3 for _ in _surrogate.finditer(shortest))  # as `\udXXX`, six bytes, where surrogatepass counts three
    return len(token.encode()) - len(shortest.encode(errors="surrogatepass")) - escaped


_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_blanks = re.compile(r"[ \t\n\r]*").match
_string_or_blanks = re.compile(r'"(?:[^"\\]++|\\.)*+"|[ \t\n\r]+').finditer
_surrogate = re.compile("[\ud800-\udfff]")
scan_value: Any = json.JSONDecoder(  # type: ignore[attr-defined]
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
).scan_once
"""`(value, end)` of the value that begins at a place of a text. Raises ValueError or StopIteration."""
