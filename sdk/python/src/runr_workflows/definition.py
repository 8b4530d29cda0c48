"""Workflow definitions: the options of `@wf.workflow`, as types and as the engine is told them (engine section 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, Required, TypedDict

from .definition_rules import CHECKS, workflow_name_fault
from .duration import duration_field
from .errors import DefinitionError, Duration
from .known_options import named, unknown
from .shown import faulty, shown

EventTrigger = TypedDict("EventTrigger", {"event": Required[str], "if": NotRequired[str]})


class CronTrigger(TypedDict):
    """Starts a run at each fire time of the cron line, UTC unless a zone is given."""

    cron: str
    timezone: NotRequired[str]
    catch_up: NotRequired[str]


class QueueTrigger(TypedDict):
    """Starts a run for each message of the queue stream."""

    queue: str


Trigger = EventTrigger | CronTrigger | QueueTrigger


class Concurrency(TypedDict):
    """At most `limit` executing runs, for each value of the expression `key` if there is one."""

    limit: int
    key: NotRequired[str]


CancelOn = TypedDict(
    "CancelOn",
    {
        "event": Required[str],
        "match": NotRequired[str],
        "if": NotRequired[str],
        "timeout": NotRequired[Duration],
    },
)


class Checkpoint(TypedDict):
    """How many steps (1 to 1,000), for how long (up to 5 minutes, 5 s without it), one answer may hold."""

    max_steps: Required[int]
    max_time: NotRequired[Duration]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A registered workflow: its function and its definition as the introspect answer holds it."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    definition: Mapping[str, Any]


def build_definition(name: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The definition for the introspect answer; options, and parts of them, that are None are left out.

    Raises DefinitionError with every fault found.
    """
    fault = workflow_name_fault(name)
    faults = [] if fault is None else [f"name: {faulty(name, fault)}"]
    if callable(name):
        faults = [f"name: it comes first, as in @wf.workflow('process-order'), not {shown(name)}"]
    for key, value in options.items():
        if key not in CHECKS:
            faults.append(f"{named(key)}: {unknown(key, CHECKS)}")
        elif value is not None:
            faults.extend(CHECKS[key](value, key))
    if faults:
        raise DefinitionError(name, faults)
    return {"name": name, **_plain(options)}


def _plain(value: Any) -> Any:
    """As JSON: timedeltas become milliseconds with their unit, members that are None are left out."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float) else duration_field(value, "duration")
