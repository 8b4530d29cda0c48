"""What decoded JSON values are to conditions and keys (engine section 7): equality, order, truth, key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


def is_true(value: object) -> bool:
    """A value as a condition: null, false, 0 and "" do not hold; everything else does, empty lists and objects too."""
    return isinstance(value, list | dict) or bool(value)


def same(left: object, right: object) -> bool:
    """Strict and deep equality: `1` is `1.0`, and neither is `true` nor `"1"`."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return _kind(left) is _kind(right) and left == right


def compare(operator: str, left: object, right: object) -> bool:
    """A comparison; the orders are of number with number and string with string, else false."""
    if operator in ("==", "!="):
        return same(left, right) is (operator == "==")
    kind = _kind(left)
    return kind in (float, str) and kind is _kind(right) and _ORDERS[operator](left, right)


def key_of(value: object) -> str | None:
    """A value as a key, equal exactly for equal values; None for null."""
    if value is None:
        return None
    return f"{_kind(value).__name__}:{json.dumps(_canonical(value), sort_keys=True)}"


def _canonical(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_canonical(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kind(value: object) -> type:
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) else type(value)
