"""Rows that are written for people: small expressions that make an input, and expectations in words."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from tests.vectors.check import Unhandled

Made = str | int | list["Made"]

_MAX_MADE = 50_000_000


def make(text: str, names: Mapping[str, int] | None = None) -> Made:
    """The value of an expression such as `"a"*200`, `"("*n + "true"`, `" || ".join(["x == %d" % i for i in range(n)])`.

    A handful of node types and no names but those given: anything else is Unhandled.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise Unhandled(f"make: {text}") from None
    return _evaluate(tree.body, dict(names or {}))


def made_text(text: str, names: Mapping[str, int] | None = None) -> str:
    """As `make`, for what must be a string."""
    value = make(text, names)
    if not isinstance(value, str):
        raise Unhandled(f"make: {text}")
    return value


def allowed(words: str) -> frozenset[str]:
    """What an expectation in words allows: of "ok", "error", "true", "false". Empty if it says something else.

    "error or true within 100 ms; never a crash" allows an error and true; "422 naming index 56" is an error.
    """
    found: set[str] = set()
    for part in re.split(r"[;,]|\bor\b", words):
        first = re.match(r"\s*(ok|accept|allowed|error|refused|blocked|true|false|4[0-9][0-9])\b", part)
        if first:
            word = first[1]
            found.add({"accept": "ok", "allowed": "ok", "refused": "error", "blocked": "error"}.get(word, word))
    return frozenset("error" if word.isdigit() else word for word in found)


def _evaluate(node: ast.expr, names: dict[str, int]) -> Made:
    match node:
        case ast.Constant(str() | int() as value):
            return value
        case ast.Name(name) if name in names:
            return names[name]
        case ast.BinOp(left, operator, right):
            return _binary(_evaluate(left, names), operator, _evaluate(right, names))
        case ast.List(elements):
            return [_evaluate(element, names) for element in elements]
        case ast.Call(ast.Attribute(ast.Constant(str(glue)), "join"), [argument], []):
            return glue.join(map(str, _listed(argument, names)))
        case ast.Call(ast.Name("str"), [argument], []):
            return str(_evaluate(argument, names))
    raise Unhandled(f"make: {ast.unparse(node)}")


def _listed(node: ast.expr, names: dict[str, int]) -> list[Made]:
    """A list, or a comprehension over one `range`."""
    match node:
        case ast.ListComp(
            element, [ast.comprehension(ast.Name(variable), ast.Call(ast.Name("range"), [count]), [])]
        ) | ast.GeneratorExp(
            element, [ast.comprehension(ast.Name(variable), ast.Call(ast.Name("range"), [count]), [])]
        ):
            times = _evaluate(count, names)
            if isinstance(times, int) and times <= 1_000_000:
                return [_evaluate(element, {**names, variable: index}) for index in range(times)]
        case ast.List():
            value = _evaluate(node, names)
            if isinstance(value, list):
                return value
    raise Unhandled(f"make: {ast.unparse(node)}")


def _binary(left: Made, operator: ast.operator, right: Made) -> Made:
    match operator, left, right:
        case ast.Add(), str(), str():
            return left + right
        case ast.Add(), int(), int():
            return left + right
        case ast.Sub(), int(), int():
            return left - right
        case (ast.Mult(), str() as text, int() as times) | (ast.Mult(), int() as times, str() as text):
            if len(text) * times <= _MAX_MADE:
                return text * times
        case ast.Mult(), int(), int():
            return left * right
        case ast.Mod(), str(), int() | str():
            return left % right
    raise Unhandled("make: an operation that is not known")
