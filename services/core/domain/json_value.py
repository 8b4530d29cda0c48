"""What decoded JSON values are to conditions and keys: equality, order, truth, key text, hash (engine section 7).

A boolean is no number (Python's `True == 1` must not leak), 1 and 1.0 are one number, integers of any size are exact,
strings compare by code point without normalization, lists and objects compare deeply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from operator import ge, gt, le, lt
from typing import Any

from services.core.domain.json_text import JsonValue
from services.core.domain.safe_text import is_storable

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


def is_true(value: JsonValue) -> bool:
    """A value as a condition: null, false, 0 and "" do not hold, everything else does, empty lists and objects too."""
    return isinstance(value, list | dict) or bool(value)


def same(left: JsonValue, right: JsonValue) -> bool:
    """Strict and deep equality. Linear in the smaller value and without recursion."""
    pending: list[tuple[JsonValue, JsonValue]] = [(left, right)]
    while pending:
        one, other = pending.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return False
            pending.extend((value, other[key]) for key, value in one.items())
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif _kind(one) is not _kind(other) or one != other:
            return False
    return True


def ordered(operator: str, left: JsonValue, right: JsonValue) -> bool:
    """`>`, `>=`, `<` or `<=`: number with number or string with string; between anything else it is false."""
    kind = _kind(left)
    return kind in (float, str) and kind is _kind(right) and _ORDERS[operator](left, right)


def key_text(value: JsonValue) -> str | None:
    """The text of a value as a key, fit for a column: `n:1`, `s:1`, `b:true`, `j:[1,2]`; None for null.

    Two values have one text exactly if they are equal, so 1, "1", true and "true" are four keys. A string that no text
    column holds (NUL, lone surrogates) is written escaped, as `j:"…"`. The length is the caller's to judge.
    """
    if value is None:
        return None
    if isinstance(value, str) and is_storable(value):
        return "s:" + value
    if isinstance(value, bool):
        return "b:true" if value else "b:false"
    if isinstance(value, int | float):
        return "n:" + _number_text(value)
    return "j:" + canonical_text(value)


def hash_value(value: JsonValue) -> int:
    """A stable signed 64-bit hash: equal values (1 and 1.0 too) hash equal, on every machine and in every release."""
    digest = blake2b((key_text(value) or "null").encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def canonical_text(value: JsonValue) -> str:
    """JSON text in ASCII that equal values share: keys sorted, numbers in one form, no blanks."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number_text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _kind(value: object) -> type:
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) else type(value)
