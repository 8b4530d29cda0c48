"""The kinds of fields and parameters that requests have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.core.domain.duration import parse_duration, parse_time
from services.core.domain.json_text import Raw, dump
from services.core.domain.text_rule import text_fault
from services.core.rpc import convert
from services.gateway.shape import Kind, Param, Shape

_MAX_TEXT = 1_000


def text(max_bytes: int = _MAX_TEXT) -> Kind:
    """A string of 1 to `max_bytes` bytes."""

    def read(raw: Raw) -> str:
        return _text(raw.value, max_bytes)

    return Kind({"type": "string", "minLength": 1, "maxLength": max_bytes}, read)


def texts(max_items: int, max_bytes: int) -> Kind:
    """A list of strings."""

    def read(raw: Raw) -> list[str]:
        if not isinstance(raw.value, list) or len(raw.value) > max_items:
            raise ValueError(f"must be a list of at most {max_items} strings")
        return [_text(item, max_bytes) for item in raw.value]

    item = {"type": "string", "minLength": 1, "maxLength": max_bytes}
    return Kind({"type": "array", "items": item, "maxItems": max_items}, read)


def nullable(kind: Kind) -> Kind:
    """The same, or null, which is read as None."""
    return Kind({"anyOf": [kind.schema, {"type": "null"}]}, lambda raw: None if raw.value is None else kind.read(raw))


def one_of(*words: str) -> Kind:
    """One of some words."""

    def read(raw: Raw) -> str:
        if raw.value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(raw.value)

    return Kind({"enum": list(words)}, read)


def enums(enum: Any) -> Kind:
    """Words of a proto enum, a list of them or one alone; their numbers."""
    item = {"enum": list(convert.words(enum))}

    def read(raw: Raw) -> list[Any]:
        words = raw.value if isinstance(raw.value, list) else [raw.value]
        return [convert.number(enum, word if isinstance(word, str) else "") for word in words]

    return Kind({"anyOf": [item, {"type": "array", "items": item}]}, read)


def nested(shape: Shape) -> Kind:
    """An object of a shape of its own."""

    def read(raw: Raw) -> Any:
        if not isinstance(raw.value, dict):
            raise ValueError("must be an object")
        return shape.values({name: Raw(value, dump(value)) for name, value in raw.value.items()}, "")

    properties = {field.name: field.kind.schema for field in shape.fields}
    return Kind({"type": "object", "properties": properties, "additionalProperties": False}, read)


def _boolean(raw: Raw) -> bool:
    if not isinstance(raw.value, bool):
        raise ValueError("must be true or false")
    return raw.value


def _json_object(raw: Raw) -> bytes:
    if not isinstance(raw.value, dict):
        raise ValueError("must be an object")
    return raw.text.encode()


BOOLEAN = Kind({"type": "boolean"}, _boolean)
JSON_OBJECT = Kind({"type": "object"}, _json_object)
"""An object of the user's, kept as the text that arrived."""

DURATION = Kind({"type": ["string", "number"]}, lambda raw: parse_duration(raw.value))
"""Milliseconds."""

TIME = Kind({"type": "string", "format": "date-time"}, lambda raw: parse_time(raw.value))
"""Unix milliseconds."""


def _text(value: object, max_bytes: int) -> str:
    fault = text_fault(value, max_bytes=max_bytes)
    if fault is not None:
        raise ValueError(fault)
    return str(value)


def text_param(name: str, *, many: bool = False) -> Param:
    """A parameter of any text."""
    return Param(name, lambda value: _text(value, _MAX_TEXT), {"type": "string"}, many)


def time_param(name: str) -> Param:
    """A parameter that is a time; unix milliseconds."""
    return Param(name, parse_time, {"type": "string", "format": "date-time"})


def flag_param(name: str) -> Param:
    """A parameter that is 1/true or 0/false."""

    def read(value: str) -> bool:
        if value not in ("1", "true", "0", "false"):
            raise ValueError("must be 1, true, 0 or false")
        return value in ("1", "true")

    return Param(name, read, {"type": "boolean"})


def enum_param(name: str, enum: Any, *, many: bool = False) -> Param:
    """A parameter that is a word of a proto enum; its number."""
    return Param(
        name, lambda value: convert.number(enum, value), {"type": "string", "enum": list(convert.words(enum))}, many
    )


def seconds_param(name: str, high: int) -> Param:
    """A parameter of whole seconds from 0 to `high`."""
    return Param(name, _whole(0, high), {"type": "integer", "minimum": 0, "maximum": high})


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not value.isascii() or not value.isdigit() or len(value) > 9 or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return read


PAGE = (
    Param("limit", _whole(1, 200), {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
    text_param("cursor"),
)
"""What every list takes (engine section 3)."""
