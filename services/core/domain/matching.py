"""Which waits an event hits: how a wait is indexed, and what an arriving event looks up (architecture section 3).

A condition is specialized when the wait is opened: every `event.…` path becomes the constant it is for this run, so
that only the incoming event (`async`) is left open. An equality among its conjuncts then finds the wait by (event
name, path, value).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from services.core.domain.expression import (
    Expression,
    compares_null,
    condition_from_json,
    condition_holds,
    condition_to_json,
    equality,
    in_order,
    index_key,
    parse_joined,
    specialize,
    value_at,
)
from services.core.domain.json_text import parse
from services.core.domain.json_value import hash_value

SCAN = (0, 0)
"""The key of waits under a condition that no equality finds: each is judged for every event of its name."""

NAME_ALONE = (0, 1)
"""The key of waits without a condition: every event of their name hits them."""

_MAX_PLAIN = 200
_MAX_INT = 1 << 63
_MAX_KEPT = 500
_BEHIND_VALUE = "}]}"
_MAX_PATH = 500  # characters, all ASCII: a longer one does not fit into an index row of Postgres


@dataclass(frozen=True, slots=True)
class WaitKey:
    """How a wait is found and decided: hashes to find it, `condition` (JSON, None = the name alone) to decide.

    All None: a wait for no event.
    """

    name_h: int | None
    path: str | None
    path_h: int | None
    val_h: int | None
    condition: str | None


@lru_cache(maxsize=4_096)
def name_hash(event_name: str) -> int:
    """The hash by which waits are indexed under an event's name."""
    return hash_value(event_name)


def event_value(*, id: str, name: str, data: str, ts: int) -> dict[str, Any]:
    """An event as expressions see it."""
    return {"id": id, "name": name, "data": parse(data), "ts": ts}


def wait_key(event_name: str, condition: str | None, trigger: dict[str, Any]) -> WaitKey:
    """How a wait for `event_name` under `condition` (expression text) is kept, for a run that `trigger` started."""
    name_h = name_hash(event_name)
    if condition is None:
        return WaitKey(name_h, None, *NAME_ALONE, None)
    special = specialize(_parsed(condition), trigger)
    key = index_key(special)
    text = condition_to_json(in_order(special))
    if key is None or len(key[0]) > _MAX_PATH:
        return WaitKey(name_h, None, *SCAN, text)
    path, val_h = key
    return WaitKey(name_h, path, _path_hash(path), val_h, text)


def _parsed(condition: str) -> Expression:
    """The tree of a condition; all waits of a step have the same text."""
    return _kept(condition) if len(condition) <= _MAX_KEPT else parse_joined(condition)


@lru_cache(maxsize=1_024)
def _kept(condition: str) -> Expression:
    return parse_joined(condition)


@lru_cache(maxsize=4_096)
def _path_hash(path: str) -> int:
    return hash_value(path)


def wait_warnings(condition: str | None, trigger: dict[str, Any]) -> tuple[str, ...]:
    """What the reader of a timeline should know about a wait under `condition` (expression text)."""
    if condition is None or not compares_null(_parsed(condition), trigger):
        return ()
    return ("match value is null",)


def lookup_keys(event: dict[str, Any], paths: Iterable[tuple[str, int]]) -> list[tuple[int, int]]:
    """The (path, value) hashes under which waits for this event may be found; `paths` are those that waits for its name
    may be open on, with their hashes.
    """
    return [SCAN, NAME_ALONE, *((path_h, hash_value(value_at(path, event))) for path, path_h in paths)]


def equal_text(path: str, value: Any) -> str | None:
    """The condition, as waits store it, of those that ask for no more than this value at this path; None for a value
    that is more than a short scalar.
    """
    if isinstance(value, str):
        plain = len(value) <= _MAX_PLAIN
    else:
        plain = value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _MAX_INT)
    return _before_value(path) + json.dumps(value) + _BEHIND_VALUE if plain else None


@lru_cache(maxsize=4_096)
def _before_value(path: str) -> str:
    """What the text of an equality at this path begins with."""
    return condition_to_json(equality(path, None)).removesuffix("null" + _BEHIND_VALUE)


def holds(condition: str | None, event: dict[str, Any]) -> bool:
    """Whether an event fulfils a stored condition."""
    return condition is None or condition_holds(condition_from_json(condition), event)
