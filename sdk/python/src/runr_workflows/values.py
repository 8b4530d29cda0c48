"""Values through JSON: what a step returns is what every later invocation reads (protocol section 7)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time
from json import encoder as json_encoder
from json.encoder import encode_basestring
from typing import Any

from .errors import SerializationError

_DEEPEST = 200
"""How deep the search for the culprit goes; the encoder itself goes to the interpreter's recursion limit."""


def encode(value: object, what: str = "value") -> str:
    """The JSON text of `value`. Tuples become lists, dates and times ISO-8601 strings, dict keys strings.

    Raises SerializationError, naming place and type, for everything else that JSON cannot hold, NaN and infinity
    included. `what` is what the message calls the value.
    """
    if value is None:
        return "null"
    try:
        text = encode_basestring(value) if type(value) is str else "".join(_parts_of(value, 0))
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        return _ASCII.encode(value)  # a lone surrogate: UTF-8 cannot carry it, a \u escape can
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(_culprit(value, what, ()) or f"{what} cannot be held by JSON: {error}") from None
    return text


def _to_json(value: object) -> str:
    if isinstance(value, date | time):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def decode(text: str) -> Any:
    """What `encode` wrote, as every later invocation reads it."""
    return _DECODER.raw_decode(text)[0]


def _made_once() -> Callable[[object, int], Iterable[str]]:
    """As `JSONEncoder.iterencode`, which makes an encoder in C for each value: half of what a small one costs.

    A value that contains itself is too deep for it.
    """
    make = getattr(json_encoder, "c_make_encoder", None)
    encoder = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_to_json
    )
    if make is None:
        return lambda value, _: encoder.iterencode(value)
    made: Callable[[object, int], Iterable[str]]
    made = make(None, _to_json, encode_basestring, None, ":", ",", False, False, False)
    return made


_DECODER = json.JSONDecoder()
_parts_of = _made_once()
_ASCII = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_to_json)


def _culprit(value: object, path: str, above: tuple[int, ...]) -> str | None:
    """A sentence about the first part of `value` that JSON cannot hold, or None if this search finds none."""
    if value is None or isinstance(value, str | bool | int | date | time):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path} is {value}: JSON has no NaN and no infinity"
    if id(value) in above:
        return f"{path} contains itself"
    if len(above) >= _DEEPEST:
        return f"{path} is nested too deeply"
    above = (*above, id(value))
    if isinstance(value, dict):
        return _culprit_in_mapping(value, path, above)
    if isinstance(value, list | tuple):
        found = (_culprit(item, f"{path}[{index}]", above) for index, item in enumerate(value))
        return next((text for text in found if text), None)
    hint = ": encode it as text, for example base64" if isinstance(value, bytes | bytearray | memoryview) else ""
    return f"{path} is of the type {_type_name(value)}, which JSON cannot hold{hint}"


def _culprit_in_mapping(value: Mapping[object, object], path: str, above: tuple[int, ...]) -> str | None:
    for key, item in value.items():
        if not (key is None or isinstance(key, str | int | float)):
            return f"{path} has a key of the type {_type_name(key)}: JSON keys are strings"
        text = _culprit(item, f"{path}[{key!r}]", above)
        if text:
            return text
    return None


def _type_name(value: object) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
