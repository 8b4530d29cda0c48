"""Expressions over the trigger event and an incoming event (engine section 7).

`parse` once, when a definition or op arrives; `evaluate` as often as needed. A wait or cancel_on outlives the memory of
its trigger event: `specialize` puts the event's values in, and what remains is a condition on the incoming event
alone, which is stored as JSON. `index_key` finds the equality by which such a condition can be looked up.
"""

from __future__ import annotations

import json
from typing import Any

from services.core.domain.expression_syntax import (
    MAX_LENGTH,
    MAX_NESTING,
    ROOTS,
    And,
    Compare,
    Expression,
    ExpressionError,
    Key,
    Literal,
    Not,
    Or,
    Path,
    parse_expression,
    parse_path,
    path_text,
)
from services.core.domain.json_text import JsonValue
from services.core.domain.json_value import hash_value, is_true, key_text, ordered, same

__all__ = [
    "ROOTS",
    "Condition",
    "Expression",
    "ExpressionError",
    "condition_from_json",
    "condition_holds",
    "condition_to_json",
    "evaluate",
    "hash_value",
    "index_key",
    "is_true",
    "key_text",
    "match_and_if",
    "match_expression",
    "parse",
    "parse_joined",
    "roots",
    "specialize",
    "value_at",
]

Condition = Expression
"""An expression in which `event` does not occur."""

_FIELDS = ("data", "id", "name", "ts")
_MAX_JOINED = 4 * MAX_LENGTH


def parse(text: object) -> Expression:
    """The tree of an expression as a user writes it. Raises ExpressionError with the position and what was expected."""
    return parse_expression(text)


def parse_joined(text: str) -> Expression:
    """The tree of a text that `match_and_if` made, which may be longer than a user's own."""
    return parse_expression(text, max_length=_MAX_JOINED, max_nesting=MAX_NESTING + 1)


def match_expression(path: object) -> str:
    """The expression that `match: "data.order_id"` is short for. Raises ExpressionError.

    A path that begins with nothing an event has would be null on both sides, and null equals null: it would match every
    event. It is refused.
    """
    keys = parse_path(path)
    if keys[0] not in _FIELDS:
        raise ExpressionError(f"a match path begins with one of {', '.join(_FIELDS)}, as in data.order_id", 0)
    tail = path_text(keys)
    return f"event.{tail} == async.{tail}"


def match_and_if(match: object | None, if_: object | None) -> str | None:
    """One expression for a `match` path and an `if`, both of which must hold; None without either.

    Read it with `parse_joined`. Raises ExpressionError.
    """
    if match is None:
        return None if if_ is None else _checked(if_)
    matching = match_expression(match)
    return matching if if_ is None else f"{matching} && ({_checked(if_)})"


def roots(expression: Expression) -> frozenset[str]:
    """Which of `event` and `async` an expression reads."""
    match expression:
        case Path(root, _):
            return frozenset((root,))
        case Not(operand):
            return roots(operand)
        case Compare(_, left, right):
            return roots(left) | roots(right)
        case And(operands) | Or(operands):
            return frozenset[str]().union(*map(roots, operands))
    return frozenset()


def evaluate(expression: Expression, *, event: JsonValue = None, async_: JsonValue = None) -> JsonValue:
    """The value for these two events; a path that does not exist is null. `&&`, `||` and `!` give booleans."""
    match expression:
        case Literal(value):
            return value
        case Path(root, keys):
            return _value_at(keys, event if root == "event" else async_)
        case Not(operand):
            return not is_true(evaluate(operand, event=event, async_=async_))
        case Compare(operator, left, right):
            return _compare(
                operator, evaluate(left, event=event, async_=async_), evaluate(right, event=event, async_=async_)
            )
        case And(operands):
            return all(is_true(evaluate(operand, event=event, async_=async_)) for operand in operands)
        case Or(operands):
            return any(is_true(evaluate(operand, event=event, async_=async_)) for operand in operands)


def specialize(expression: Expression, event: JsonValue) -> Condition:
    """The condition on the incoming event that remains when the trigger event is known.

    It holds for exactly the events for which the expression holds; its value as such is not kept.
    """
    match expression:
        case Path("event", keys):
            return Literal(_value_at(keys, event))
        case Not(operand):
            inner = specialize(operand, event)
            return Literal(not is_true(inner.value)) if isinstance(inner, Literal) else Not(inner)
        case Compare(operator, left, right):
            one, other = specialize(left, event), specialize(right, event)
            if isinstance(one, Literal) and isinstance(other, Literal):
                return Literal(_compare(operator, one.value, other.value))
            return Compare(operator, one, other)
        case And(operands):
            return _joined([specialize(operand, event) for operand in operands], neutral=True, join=And)
        case Or(operands):
            return _joined([specialize(operand, event) for operand in operands], neutral=False, join=Or)
    return expression


def compares_null(expression: Expression, event: JsonValue) -> bool:
    """Whether a conjunct `event.<path> == async.<path>` compares with null, because the trigger event lacks the path.

    It holds then for every event that lacks it too, which an author rarely means.
    """
    for conjunct in expression.operands if isinstance(expression, And) else (expression,):
        match conjunct:
            case Compare("==", Path("event", keys), Path("async", _)) | Compare(
                "==", Path("async", _), Path("event", keys)
            ):
                if _value_at(keys, event) is None:
                    return True
    return False


def condition_holds(condition: Condition, async_event: JsonValue) -> bool:
    """Whether an incoming event fulfils a condition."""
    return is_true(evaluate(condition, async_=async_event))


def condition_to_json(condition: Condition) -> str:
    """Compact ASCII text of a condition, fit for a text column; `condition_from_json` reads it back."""
    return json.dumps(_encoded(condition), separators=(",", ":"))


def condition_from_json(text: str) -> Condition:
    """The condition that `condition_to_json` wrote."""
    return _decoded(json.loads(text))


def index_key(condition: Condition) -> tuple[str, int] | None:
    """`(path, hash of the value)` of the first conjunct `async.<path> == <constant>` or the reverse; None without one.

    An event fulfils the condition only if `hash_value(value_at(path, event))` is that hash.
    """
    for conjunct in condition.operands if isinstance(condition, And) else (condition,):
        match conjunct:
            case Compare("==", Path("async", keys), Literal(value)) | Compare(
                "==", Literal(value), Path("async", keys)
            ):
                if keys and isinstance(keys[0], str):
                    return path_text(keys), hash_value(value)
    return None


def value_at(path: str, async_event: JsonValue) -> JsonValue:
    """The value at a path that `index_key` gave, in an incoming event; null where there is none."""
    return _value_at(_keys(path), async_event)


def _keys(path: str) -> tuple[Key, ...]:
    return tuple(path.split(".")) if "[" not in path else parse_path(path)


def equality(path: str, value: JsonValue) -> Condition:
    """`async.<path> == value`, for a path as `index_key` gives it."""
    return Compare("==", Path("async", _keys(path)), Literal(value))


def in_order(condition: Condition) -> Condition:
    """A condition that is a single equality, with its constant on the right: so all that say the same have one text."""
    match condition:
        case Compare("==", Literal() as left, Path() as right):
            return Compare("==", right, left)
    return condition


def _checked(text: object) -> str:
    parse(text)
    return str(text)


def _value_at(keys: tuple[Key, ...], value: JsonValue) -> JsonValue:
    for key in keys:
        if isinstance(key, str):
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        elif isinstance(value, list) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def _compare(operator: str, left: JsonValue, right: JsonValue) -> bool:
    if operator == "==":
        return same(left, right)
    return not same(left, right) if operator == "!=" else ordered(operator, left, right)


def _joined(operands: list[Expression], *, neutral: bool, join: type[And] | type[Or]) -> Expression:
    """Operands of `&&` (neutral: true) or `||` (neutral: false), without those that are known, as a boolean still."""
    left: list[Expression] = []
    for operand in operands:
        if isinstance(operand, Literal):
            if is_true(operand.value) is not neutral:
                return Literal(not neutral)
        elif isinstance(operand, join):
            left.extend(operand.operands)
        else:
            left.append(operand)
    if not left:
        return Literal(neutral)
    if len(left) > 1:
        return join(tuple(left))
    return Not(Not(left[0])) if isinstance(left[0], Path) else left[0]


def _encoded(expression: Expression) -> Any:
    match expression:
        case Literal(value):
            return {"v": value}
        case Path(_, keys):
            return list(keys)
        case Not(operand):
            return {"!": _encoded(operand)}
        case Compare(operator, left, right):
            return {operator: [_encoded(left), _encoded(right)]}
        case And(operands):
            return {"&&": [_encoded(operand) for operand in operands]}
        case Or(operands):
            return {"||": [_encoded(operand) for operand in operands]}


def _decoded(value: Any) -> Expression:
    if isinstance(value, list):
        return Path("async", tuple(value))
    ((kind, inner),) = value.items()
    if kind == "v":
        return Literal(inner)
    if kind == "!":
        return Not(_decoded(inner))
    operands = tuple(_decoded(operand) for operand in inner)
    if kind in ("&&", "||"):
        return And(operands) if kind == "&&" else Or(operands)
    return Compare(kind, *operands)
