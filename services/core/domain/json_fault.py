"""Where and why a JSON text is refused: the slow second look at a text that the fast reader did not take."""

from __future__ import annotations

import json
import math
import re
import sys

from services.core.domain.errors import FieldError, InvalidInput, Malformed

MAX_DEPTH = 128
"""Levels of nesting of one payload."""

_MOST_TOKENS = 100_000


class JsonError(InvalidInput):
    """A text that is JSON, but holds what we do not take: nested too deep, a number out of range.

    `position` counts characters of the text from 0; `path` is like `events[3].data.n`.
    """

    reason = "JSON_REFUSED"

    def __init__(self, message: str, position: int, path: str = "") -> None:
        text = f"{message}, at character {position + 1}"
        super().__init__(f"{path}: {text}" if path else text, errors=[FieldError(path, text)])
        self.position = position
        self.path = path


class JsonSyntaxError(JsonError, Malformed):
    """A text that is not JSON, or not unambiguously (a key that comes twice)."""

    reason = "MALFORMED"


def child_path(path: str, key: str | int) -> str:
    """The path of a member or element: `a.b`, `a[0]`, `a["odd key"]`. Fit for any text, whatever the key holds."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _plain_key(key):
        return f"{path}[{json.dumps(key[:100])}]"
    return f"{path}.{key[:100]}" if path else key[:100]


def deeper_than(text: str, limit: int) -> bool:
    """Whether a text has more than `limit` levels of lists and objects. Linear, without recursion."""
    if text.count("[") + text.count("{") <= limit or _surely_flat(text, limit):
        return False
    depth = 0
    for match in _string_or_bracket(text):
        mark = match[0]
        if mark in "[{":
            depth += 1
            if depth > limit:
                return True
        elif mark in "]}":
            depth -= 1
    return False


def _surely_flat(text: str, limit: int) -> bool:
    """Whether the depth is certainly within the limit: innermost pairs are taken away until none is left, a level at a
    time.

    All of it runs in C, so that megabytes of an ordinary table cost milliseconds and not a loop over its tokens.
    """
    brackets = _brackets_of(text)
    for level in range(limit):
        # Not one kind after the other: `{[]}` are two levels.
        inner = brackets.replace("[]", " ").replace("{}", " ").replace(" ", "")
        if len(inner) == len(brackets):  # what is left is not closed: each may be a level more
            return level + inner.count("[") + inner.count("{") <= limit
        brackets = inner
    return not brackets


def _brackets_of(text: str) -> str:
    """The brackets of a text outside its strings; a part at a time, or each token would be an object of its own."""
    parts: list[str] = []
    at = 0
    while part := _part(text, at):
        parts.append(_no_bracket("", part[0]))
        at = part.end()
    return "".join([*parts, _no_bracket("", text[at:])])


def explain(text: str, error: Exception | None, *, max_depth: int, root: str = "") -> JsonError:
    """The first fault of a refused text, with its path, which begins with `root`.

    `error` is what the reader stopped at, if it knows where.
    """
    stop, reason = _place(text, error)
    walk = _Walk(max_depth, root)
    for count, match in enumerate(_token(text)):
        if match.start() >= stop:
            break
        if count == _MOST_TOKENS:  # a path is not worth a second of everybody's time
            return JsonSyntaxError(reason, min(stop, len(text)), root)
        fault = walk.take(match[0])
        if fault is not None:
            kind = JsonError if walk.beyond_limit else JsonSyntaxError
            return kind(fault, match.start(), walk.path())
    return JsonSyntaxError(reason, min(stop, len(text)), walk.path())


def _place(text: str, error: Exception | None) -> tuple[int, str]:
    """Where the reader stopped for a fault of syntax (the end of the text if it does not know), and its words."""
    if isinstance(error, json.JSONDecodeError):
        reason = error.msg[0].lower() + error.msg[1:]
        return error.pos, reason.removesuffix(" at").removesuffix(" starting")
    if isinstance(error, StopIteration):
        found = text[error.value : error.value + 10]
        return error.value, "expected a JSON value, found " + (json.dumps(found) if found else "the end of the text")
    return len(text), "is not JSON"


class _Walk:
    """The path of the current token, and the faults that are no faults of syntax."""

    def __init__(self, max_depth: int, root: str) -> None:
        self.max_depth = max_depth
        self._root = root
        self.beyond_limit = False
        self._keys: list[str | int] = []
        self._seen: list[set[str] | None] = []
        self._wants_key = False

    def take(self, mark: str) -> str | None:
        """Move over one token; the fault it carries, if any."""
        if mark in "[{":
            return self._open(mark)
        if mark in "]}":
            self._close()
        elif mark == ",":
            self._next()
        elif mark == ":":
            self._wants_key = False
        elif mark[0] == '"':
            return self._key(mark) if self._wants_key else None
        elif mark in ("NaN", "Infinity", "-Infinity"):
            return f"{mark} is not JSON"
        elif mark[0] in "-0123456789":
            return self._number(mark)
        return None

    def path(self) -> str:
        """The path of the value at hand, like `a[0].b`."""
        path = self._root
        for key in self._keys:
            if key != "":
                path = child_path(path, key)
        return path

    def _open(self, mark: str) -> str | None:
        if len(self._keys) >= self.max_depth:
            self.beyond_limit = True
            del self._keys[8:]
            return f"is nested deeper than {self.max_depth} levels"
        self._keys.append(0 if mark == "[" else "")
        self._seen.append(None if mark == "[" else set())
        self._wants_key = mark == "{"
        return None

    def _close(self) -> None:
        if self._keys:
            self._keys.pop()
            self._seen.pop()
        self._wants_key = False

    def _next(self) -> None:
        if not self._keys:
            return
        last = self._keys[-1]
        if isinstance(last, int):
            self._keys[-1] = last + 1
        self._wants_key = not isinstance(last, int)

    def _key(self, token: str) -> str | None:
        try:
            key: str = json.loads(token)
        except ValueError:
            return None
        seen = self._seen[-1] if self._seen else None
        if seen is None:
            return None
        self._keys[-1] = key
        if key in seen:
            return f"the key {json.dumps(key[:100])} comes twice"
        seen.add(key)
        return None

    def _number(self, token: str) -> str | None:
        self.beyond_limit = True
        if token.lstrip("-").isdigit():
            limit = sys.get_int_max_str_digits()
            if limit and len(token.lstrip("-")) > limit:
                return f"the integer has more than {limit} digits"
        elif _is_number(token) and math.isinf(float(token)):
            return f"the number {token[:30]} is out of range"
        self.beyond_limit = False
        return None


_no_bracket = re.compile(r'"(?:[^"\\]++|\\.)*+"|[^\[\]{}"]++', re.DOTALL).sub
_part = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"|[^"]{1,16}+){1,65536}+', re.DOTALL).match
_string_or_bracket = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{\]}]', re.DOTALL).finditer
_token = re.compile(
    r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|-?Infinity|NaN|-?[0-9][0-9.eE+-]*|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL
).finditer
_is_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
_plain_key = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*").fullmatch
