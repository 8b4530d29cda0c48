"""The grammar of expressions (engine section 7): text to tree.

    or         := and ("||" and)*
    and        := comparison ("&&" comparison)*
    comparison := unary (("==" | "!=" | ">" | ">=" | "<" | "<=") unary)?        comparisons do not chain
    unary      := "!" unary | "(" or ")" | literal | path
    path       := ("event" | "async") ("." NAME | "[" STRING "]" | "[" INDEX "]")*
    literal    := STRING | NUMBER | "true" | "false" | "null"

Strings stand in single or double quotes, numbers are JSON's, names and digits are ASCII, blanks are those of JSON.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from services.core.domain.errors import FieldError, InvalidInput
from services.core.domain.json_text import JsonValue
from services.core.domain.safe_text import is_storable

MAX_LENGTH = 1000
MAX_NESTING = 32

Key = str | int


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: JsonValue


@dataclass(frozen=True, slots=True)
class Path:
    """A value inside one of the two roots."""

    root: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`!operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class And:
    """All operands hold; at least two."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of the operands holds; at least two."""

    operands: tuple[Expression, ...]


Expression = Literal | Path | Not | Compare | And | Or
"""A parsed expression. Its depth is bounded by `MAX_NESTING`, so walking it may recurse."""

ROOTS = ("event", "async")


class ExpressionError(InvalidInput):
    """An expression that is refused. `position` counts characters from 0; the message counts from 1."""

    reason = "BAD_EXPRESSION"

    def __init__(self, message: str, position: int) -> None:
        text = f"at character {position + 1}: {message}"
        super().__init__(text, errors=[FieldError("", text)])
        self.position = position


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


# The string pattern cannot backtrack (possessive); an open string is a kind of its own, not a reason to try again.
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
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_COMPARISONS = frozenset(("==", "!=", ">", ">=", "<", "<="))
_CONSTANTS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}
_CONTROL = re.compile(r"[\x00-\x1f]")
_JSON_ONLY = re.compile(r"\\[\\bf]")
_SAID_BY_CODE = {"\\b": "\\u0008", "\\f": "\\u000c"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_expression(text: object, *, max_length: int = MAX_LENGTH, max_nesting: int = MAX_NESTING) -> Expression:
    """The tree of an expression. Raises ExpressionError with the position and what was expected."""
    parser = _parser(text, max_length, max_nesting)
    tree = parser.alternatives()
    parser.end("an operator or the end")
    return tree


def parse_path(text: object) -> tuple[Key, ...]:
    """The keys of a path without a root, such as `data.order_id`. Raises ExpressionError."""
    parser = _parser(text, MAX_LENGTH, MAX_NESTING)
    first = parser.name("a path like data.order_id")
    keys = parser.path_keys()
    parser.end("'.', '[' or the end")
    return (first, *keys)


def path_text(keys: tuple[Key, ...]) -> str:
    """The text of a path without a root; `parse_path` reads it back if the first key is a name."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _NAME.fullmatch(key):
            text += f".{key}" if text else key
        else:
            text += f"[{_quoted(key)}]"
    return text


def _quoted(key: str) -> str:
    # JSON knows two escapes that expressions do not; `\u` says the same.
    return _JSON_ONLY.sub(lambda match: _SAID_BY_CODE.get(match[0], match[0]), json.dumps(key))


def _parser(text: object, max_length: int, max_nesting: int) -> _Parser:
    if not isinstance(text, str):
        raise ExpressionError("an expression is a string", 0)
    if len(text) > max_length:
        raise ExpressionError(f"an expression has at most {max_length} characters, this has {len(text)}", max_length)
    if not is_storable(text):
        raise ExpressionError("an expression holds no NUL and no lone surrogate: write it escaped, in a string", 0)
    return _Parser(_tokens(text), max_nesting)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            _refuse_character(text, at)
        if match.lastgroup != "blanks":
            tokens.append(_Token(match.lastgroup, match[0], at))
        at = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _refuse_character(text: str, at: int) -> NoReturn:
    character = text[at]
    if character in "'\"":
        raise ExpressionError(f"the string that begins here has no closing {character}", at)
    if character in "+-*/%":
        raise ExpressionError(f'unexpected {character}: there is no arithmetic, and other keys stand in ["…"]', at)
    if character in "0123456789":
        raise ExpressionError("expected a number as JSON writes it", at)
    if text.startswith(("===", "!=="), at):
        raise ExpressionError(
            f"{text[at : at + 3]} is no operator, comparisons are strict: use {text[at : at + 2]}", at
        )
    if character in "=&|":
        raise ExpressionError(f"{character} is no operator, expected {character * 2}", at)
    raise ExpressionError(f"unexpected {character!a}", at)


class _Parser:
    """Precedence climbing over the tokens; `_depth` counts open parentheses and `!`."""

    def __init__(self, tokens: list[_Token], max_nesting: int) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._max_nesting = max_nesting

    def alternatives(self) -> Expression:
        operands = [self._conjunction()]
        while self._took("||"):
            operands.append(self._conjunction())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def path_keys(self) -> tuple[Key, ...]:
        keys: list[Key] = []
        while True:
            if self._took("."):
                keys.append(self.name("a name after '.' (other keys stand in [\"…\"])"))
            elif self._took("["):
                keys.append(self._bracketed())
            else:
                return tuple(keys)

    def name(self, expected: str) -> str:
        if self._peek.kind != "name":
            self._refuse(expected)
        return self._advance().text

    def end(self, expected: str) -> None:
        if self._peek.kind != "end":
            self._refuse(expected)

    def _conjunction(self) -> Expression:
        operands = [self._comparison()]
        while self._took("&&"):
            operands.append(self._comparison())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _comparison(self) -> Expression:
        left = self._unary()
        if not self._at_comparison():
            return left
        operator = self._advance().text
        right = self._unary()
        if self._at_comparison():
            self._refuse("'&&', '||' or the end, for comparisons do not chain")
        return Compare(operator, left, right)

    def _unary(self) -> Expression:
        if self._took("!"):
            self._deeper()
            operand = self._unary()
            self._depth -= 1
            return Not(operand)
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
            return Literal(_unquoted(self._advance()))
        if token.kind == "number":
            return Literal(_number(self._advance()))
        if token.kind != "name":
            self._refuse("a value: a path, a string, a number, true, false or null")
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[self._advance().text])
        if token.text not in ROOTS:
            self._refuse("event, async, true, false or null")
        return Path(self._advance().text, self.path_keys())

    def _bracketed(self) -> Key:
        token = self._advance()
        key: Key
        if token.kind == "string":
            key = _unquoted(token)
        elif token.kind == "number" and token.text.isdigit():
            key = int(token.text)
        else:
            raise ExpressionError(f"expected a quoted key or an index from 0, found {_found(token)}", token.at)
        if not self._took("]"):
            self._refuse("']'")
        return key

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > self._max_nesting:
            at = self._tokens[self._next - 1].at
            raise ExpressionError(f"nested deeper than {self._max_nesting} levels", at)

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _advance(self) -> _Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _took(self, mark: str) -> bool:
        token = self._tokens[self._next]
        if token.kind != "mark" or token.text != mark:
            return False
        self._next += 1
        return True

    def _at_comparison(self) -> bool:
        return self._peek.kind == "mark" and self._peek.text in _COMPARISONS

    def _refuse(self, expected: str) -> NoReturn:
        raise ExpressionError(f"expected {expected}, found {_found(self._peek)}", self._peek.at)


def _found(token: _Token) -> str:
    return ascii(token.text[:40]) if token.text else "the end"


def _unquoted(token: _Token) -> str:
    inner = token.text[1:-1]
    if _CONTROL.search(inner):
        raise ExpressionError("a string holds no raw control character: write it escaped", token.at)
    if "\\" not in inner:
        return inner
    plain = _ESCAPE.sub(lambda match: _unescaped(match, token), inner)
    return _SURROGATE_PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), plain)


def _unescaped(match: re.Match[str], token: _Token) -> str:
    if match["code"] is not None:
        return chr(int(match["code"], 16))
    if match["one"] not in _ESCAPED:
        allowed = r"\\ \' \" \n \t \r \uXXXX"
        raise ExpressionError(f"unknown escape, allowed are {allowed}", token.at + 1 + match.start())
    return _ESCAPED[match["one"]]


def _number(token: _Token) -> int | float:
    if token.text.lstrip("-").isdigit():
        return int(token.text)
    number = float(token.text)
    if math.isinf(number):
        raise ExpressionError(f"the number {token.text[:40]} is out of range", token.at)
    return number
