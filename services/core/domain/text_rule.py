"""The rule for short texts that become columns: UTF-8 that Postgres can store, within a size."""

from __future__ import annotations

import json

from services.core.domain.safe_text import is_storable, utf8_size

_SHOWN = 80


def text_fault(value: object, *, max_bytes: int, what: str = "a string") -> str | None:
    """Why a decoded value is not a text of 1 to `max_bytes` bytes of UTF-8 without NUL; None if it is one.

    A lone surrogate (the JSON escape `\\ud800`) and NUL decode to strings that no text column holds.
    """
    if not isinstance(value, str):
        return f"must be {what}, not {json_type(value)}"
    if not value:
        return f"must be {what} of 1–{max_bytes} bytes, not empty"
    if not is_storable(value):
        return f"must be {what} without NUL (\\u0000) and without lone surrogates (\\ud800)"
    size = utf8_size(value)
    return f"must be {what} of at most {max_bytes} bytes, it has {size}" if size > max_bytes else None


def shown(value: object) -> str:
    """A decoded value as JSON for a message, cut: `got 21`, `got "soon"`."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def json_type(value: object) -> str:
    """The JSON name of a decoded value's type, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list | tuple) else "an object"
