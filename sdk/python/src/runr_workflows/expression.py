"""Expressions over the trigger event and an incoming event (engine section 7): the whole grammar.

    or         := and ("||" and)*
    and        := comparison ("&&" comparison)*
    comparison := unary (("==" | "!=" | ">" | ">=" | "<" | "<=") unary)?
    unary      := "!" unary | "(" or ")" | literal | path
    path       := ("event" | "async") ("." NAME | "[" STRING "]" | "[" INDEX "]")*
    literal    := STRING | NUMBER | "true" | "false" | "null"

A parsed expression is a function of the two events.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

from .json_values import compare, is_true

MAX_LENGTH = 1000
MAX_NESTING = 32

Events = tuple[Any, Any]
"""The trigger event and the incoming one."""
Expression = Callable[[Events], Any]
Key = str | int

_ROOTS = ("event", "async")
_FIELDS = ("data", "id", "name", "ts")
_COMPARISONS = ("==", "!=", ">", ">=", "<", "<=")
_CONSTANTS = {"true": True, "false": False, "null": None}
_TOKEN = re.compile(
    r"""(?P<blanks>[ \t\n\r]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))
    |(?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')
    |(?P<mark>==(?!=)|!=(?!=)|>=|<=|&&|\|\||[<>!().\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<one>.))", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r"}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f]")


class ExpressionError(ValueError):
    """An expression that the engine refuses."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(text: object, only: str | None = None) -> Expression:
    """The function that an expression is; `only` is the one event that it may use. Raises ExpressionError."""
    parser = _Parser(_tokens(text))
    found = parser.alternatives()
    parser.end()
    if only is not None and parser.roots - {only}:
        raise ExpressionError(f"may only use {only}: there is no incoming event here")
    return found


def parse_match(path: object) -> Expression:
    """`match="data.order_id"`: both events agree there. Raises ExpressionError."""
    parser = _Parser(_tokens(path))
    keys = (parser.name(), *parser.keys())
    parser.end()
    if keys[0] not in _FIELDS:
        raise ExpressionError(
            f"at character 1: a match path begins with one of {', '.join(_FIELDS)}, as in data.order_id"
        )
    return lambda events: compare("==", _value_at(keys, events[0]), _value_at(keys, events[1]))


def condition(match: object | None, if_: object | None) -> Expression:
    """Whether `match` and `if_`, where given, both hold. Raises ExpressionError."""
    parts: list[Expression] = []
    if match is not None:
        parts.append(parse_match(match))
    if if_ is not None:
        parts.append(parse(if_))
    return lambda events: all(is_true(part(events)) for part in parts)


def _value_at(keys: tuple[Key, ...], value: Any) -> Any:
    for key in keys:
        if isinstance(key, str) and isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(key, int) and isinstance(value, list) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def _tokens(text: object) -> list[_Token]:
    if not isinstance(text, str):
        raise ExpressionError("at character 1: an expression is a string")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"at character {MAX_LENGTH + 1}: an expression has at most {MAX_LENGTH} characters, this has {len(text)}"
        )
    if _UNSTORABLE.search(text):
        raise ExpressionError(
            "at character 1: an expression holds no NUL and no lone surrogate: write it escaped, in a string"
        )
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ExpressionError(f"at character {at + 1}: unexpected {text[at]!a}")
        if match.lastgroup != "blanks":
            tokens.append(_Token(match.lastgroup, match[0], at))
        at = match.end()
    return [*tokens, _Token("end", "", len(text))]


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.roots: set[str] = set()
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def alternatives(self) -> Expression:
        operands = [self._conjunction()]
        while self._took("||"):
            operands.append(self._conjunction())
        return operands[0] if len(operands) == 1 else lambda events: any(is_true(each(events)) for each in operands)

    def keys(self) -> tuple[Key, ...]:
        keys: list[Key] = []
        while True:
            if self._took("."):
                keys.append(self.name())
            elif self._took("["):
                keys.append(self._bracketed())
            else:
                return tuple(keys)

    def name(self) -> str:
        if self._peek.kind != "name":
            self._refuse("a name")
        return self._advance().text

    def end(self) -> None:
        if self._peek.kind != "end":
            self._refuse("an operator or the end")

    def _conjunction(self) -> Expression:
        operands = [self._comparison()]
        while self._took("&&"):
            operands.append(self._comparison())
        return operands[0] if len(operands) == 1 else lambda events: all(is_true(each(events)) for each in operands)

    def _comparison(self) -> Expression:
        left = self._unary()
        if not self._at_comparison():
            return left
        operator = self._advance().text
        right = self._unary()
        if self._at_comparison():
            self._refuse("'&&', '||' or the end, for comparisons do not chain")
        return lambda events: compare(operator, left(events), right(events))

    def _unary(self) -> Expression:
        if self._took("!"):
            self._deeper()
            operand = self._unary()
            self._depth -= 1
            return lambda events: not is_true(operand(events))
        if self._took("("):
            self._deeper()
            inner = self.alternatives()
            if not self._took(")"):
                self._refuse("an operator or ')'")
            self._depth -= 1
            return inner
        return self._operand()

    def _operand(self) -> Expression:
        token = self._peek
        if token.kind == "string":
            return partial(_constant, _unquoted(self._advance()))
        if token.kind == "number":
            return partial(_constant, _number(self._advance()))
        if token.kind != "name":
            self._refuse("a value: a path, a string, a number, true, false or null")
        if token.text in _CONSTANTS:
            return partial(_constant, _CONSTANTS[self._advance().text])
        if token.text not in _ROOTS:
            self._refuse("event, async, true, false or null")
        self.roots.add(token.text)
        root = _ROOTS.index(self._advance().text)
        keys = self.keys()
        return lambda events: _value_at(keys, events[root])

    def _bracketed(self) -> Key:
        token = self._advance()
        key: Key
        if token.kind == "string":
            key = _unquoted(token)
        elif token.kind == "number" and token.text.isdigit():
            key = int(token.text)
        else:
            raise ExpressionError(f"at character {token.at + 1}: expected a quoted key or an index from 0")
        if not self._took("]"):
            self._refuse("']'")
        return key

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ExpressionError(f"nested deeper than {MAX_NESTING} levels")

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _advance(self) -> _Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _took(self, mark: str) -> bool:
        if self._peek.kind != "mark" or self._peek.text != mark:
            return False
        self._next += 1
        return True

    def _at_comparison(self) -> bool:
        return self._peek.kind == "mark" and self._peek.text in _COMPARISONS

    def _refuse(self, expected: str) -> NoReturn:
        found = ascii(self._peek.text[:40]) if self._peek.text else "the end"
        raise ExpressionError(f"at character {self._peek.at + 1}: expected {expected}, found {found}")


def _constant(value: object, _: Events) -> object:
    return value


def _unquoted(token: _Token) -> str:
    inner = token.text[1:-1]
    if _CONTROL.search(inner):
        raise ExpressionError(f"at character {token.at + 1}: a string holds no raw control character")
    plain = _ESCAPE.sub(lambda match: _unescaped(match, token), inner)
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), plain)


def _unescaped(match: re.Match[str], token: _Token) -> str:
    if match["code"] is not None:
        return chr(int(match["code"], 16))
    if match["one"] not in _ESCAPED:
        raise ExpressionError(f"at character {token.at + 1}: unknown escape \\{match['one']}")
    return _ESCAPED[match["one"]]


def _number(token: _Token) -> int | float:
    if token.text.lstrip("-").isdigit():
        return int(token.text)
    number = float(token.text)
    if math.isinf(number):
        raise ExpressionError(f"at character {token.at + 1}: the number is out of range")
    return number
