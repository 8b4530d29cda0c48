"""A workflow's definition as the engine of the kit follows it (engine section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..duration import parse_duration
from ..expression import Expression, condition, parse

_RETRIES = 3
_TIMEOUT = "30d"


@dataclass(frozen=True, slots=True)
class Listener:
    """An event by its name, and a condition on it. `timeout_ms`: only within this time."""

    event: str
    holds: Expression
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The options that the kit knows. Of concurrency it need not: it executes one step at a time."""

    name: str
    max_attempts: int
    timeout_ms: int
    triggers: tuple[Listener, ...]
    cancel_on: tuple[Listener, ...]
    idempotency: Expression | None
    max_ops: int | None


def declared(definition: Mapping[str, Any]) -> Declared:
    """Reads a definition of `wf.definitions`."""
    key = definition.get("idempotency")
    return Declared(
        name=definition["name"],
        max_attempts=definition.get("retries", _RETRIES) + 1,
        timeout_ms=parse_duration(definition.get("timeout", _TIMEOUT)),
        triggers=tuple(_listener(each) for each in definition.get("triggers", ()) if "event" in each),
        cancel_on=tuple(_listener(each) for each in definition.get("cancel_on", ())),
        idempotency=None if key is None else parse(key),
        max_ops=definition.get("checkpoint", {}).get("max_steps"),
    )


def _listener(given: Mapping[str, Any]) -> Listener:
    timeout = given.get("timeout")
    holds = condition(given.get("match"), given.get("if"))
    return Listener(given["event"], holds, None if timeout is None else parse_duration(timeout))
