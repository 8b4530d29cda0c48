"""Definitions of workflows: what a project declares (engine section 1).

A definition's canonical form is a definition again, every default spelled out, so that equal definitions have equal
text and one version hash. The rules that a declared definition must keep are in `workflow.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from services.core.domain.duration import format_duration, parse_duration

DEFAULT_RETRIES = 3
DEFAULT_TIMEOUT_MS = 30 * 86_400_000
DEFAULT_CHECKPOINT_MS = 5000


@dataclass(frozen=True, slots=True)
class EventTrigger:
    """Start a run for each event of this name for which `if_` holds (None: always)."""

    event: str
    if_: str | None = None


@dataclass(frozen=True, slots=True)
class CronTrigger:
    """Start a run at each tick. `catch_up` is what happens to ticks missed: latest, all or none."""

    cron: str
    timezone: str = "UTC"
    catch_up: str = "latest"


@dataclass(frozen=True, slots=True)
class QueueTrigger:
    """Start a run for each message of a stream, which arrives as the event `queue/<stream>`."""

    queue: str


Trigger = EventTrigger | CronTrigger | QueueTrigger


@dataclass(frozen=True, slots=True)
class ConcurrencyLimit:
    """At most `limit` runs running at once, per value of the expression `key` if there is one."""

    limit: int
    key: str | None = None


@dataclass(frozen=True, slots=True)
class CancelOn:
    """Cancel a run at an event of this name for which `match` and `if_` hold, within `timeout_ms` of its start."""

    event: str
    match: str | None = None
    if_: str | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One answer may carry up to `max_steps` completed steps, begun within `max_time_ms` (protocol section 3)."""

    max_steps: int
    max_time_ms: int = DEFAULT_CHECKPOINT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One valid workflow. Expressions are kept as the text that was checked."""

    name: str
    description: str = ""
    triggers: tuple[Trigger, ...] = ()
    retries: int = DEFAULT_RETRIES
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    concurrency: tuple[ConcurrencyLimit, ...] = ()
    idempotency: str | None = None
    cancel_on: tuple[CancelOn, ...] = ()
    checkpoint: Checkpoint | None = None

    @property
    def max_attempts(self) -> int:
        """Attempts of each step, and of the function."""
        return self.retries + 1


def definition_to_json(definition: Definition) -> str:
    """The canonical text: keys sorted, every default spelled out, nothing that is unset."""
    return json.dumps(_value(definition), sort_keys=True, separators=(",", ":"))


def definition_from_json(text: str) -> Definition:
    """The definition that `definition_to_json` wrote. Nothing is checked: it was valid."""
    value = json.loads(text)
    checkpoint = value.get("checkpoint")
    return Definition(
        name=value["name"],
        description=value["description"],
        triggers=tuple(map(_trigger, value["triggers"])),
        retries=value["retries"],
        timeout_ms=parse_duration(value["timeout"]),
        concurrency=tuple(ConcurrencyLimit(limit["limit"], limit.get("key")) for limit in value["concurrency"]),
        idempotency=value.get("idempotency"),
        cancel_on=tuple(map(_cancel_on, value["cancel_on"])),
        checkpoint=checkpoint and Checkpoint(checkpoint["max_steps"], parse_duration(checkpoint["max_time"])),
    )


def version_hash(definitions: Iterable[Definition]) -> str:
    """SHA-256, in hex, of the canonical list. The order of the list does not matter."""
    texts = sorted(map(definition_to_json, definitions))
    return hashlib.sha256(f"[{','.join(texts)}]".encode()).hexdigest()


def _value(definition: Definition) -> dict[str, Any]:
    checkpoint = definition.checkpoint
    return _set(
        name=definition.name,
        description=definition.description,
        triggers=[_trigger_value(trigger) for trigger in definition.triggers],
        retries=definition.retries,
        timeout=format_duration(definition.timeout_ms),
        concurrency=[_set(limit=limit.limit, key=limit.key) for limit in definition.concurrency],
        idempotency=definition.idempotency,
        cancel_on=[
            {**_set(event=cancel.event, match=cancel.match, timeout=_duration(cancel.timeout_ms)), **_if(cancel.if_)}
            for cancel in definition.cancel_on
        ],
        checkpoint=checkpoint
        and {"max_steps": checkpoint.max_steps, "max_time": format_duration(checkpoint.max_time_ms)},
    )


def _trigger_value(trigger: Trigger) -> dict[str, Any]:
    match trigger:
        case EventTrigger(event, if_):
            return {"event": event, **_if(if_)}
        case CronTrigger(cron, timezone, catch_up):
            return {"cron": cron, "timezone": timezone, "catch_up": catch_up}
        case QueueTrigger(queue):
            return {"queue": queue}


def _trigger(value: dict[str, Any]) -> Trigger:
    if "event" in value:
        return EventTrigger(value["event"], value.get("if"))
    if "cron" in value:
        return CronTrigger(value["cron"], value["timezone"], value["catch_up"])
    return QueueTrigger(value["queue"])


def _cancel_on(value: dict[str, Any]) -> CancelOn:
    timeout = value.get("timeout")
    return CancelOn(
        value["event"],
        match=value.get("match"),
        if_=value.get("if"),
        timeout_ms=None if timeout is None else parse_duration(timeout),
    )


def _set(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _if(expression: str | None) -> dict[str, str]:
    return {} if expression is None else {"if": expression}


def _duration(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_duration(milliseconds)
