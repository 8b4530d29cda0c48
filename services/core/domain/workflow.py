"""Checking a declared list of workflows: every fault with its path, nothing half-accepted (engine section 1).

`PUT` refuses fields that it does not know. A function or `runr.workflows.json` may be newer than the engine: there
unknown fields become warnings. A field that is null counts as left out, as some languages write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from services.core.domain import expression
from services.core.domain.cron import CronError, load_zone, parse_cron
from services.core.domain.definition import (
    DEFAULT_CHECKPOINT_MS,
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT_MS,
    CancelOn,
    Checkpoint,
    ConcurrencyLimit,
    CronTrigger,
    Definition,
    EventTrigger,
    QueueTrigger,
    Trigger,
    definition_from_json,
    definition_to_json,
    version_hash,
)
from services.core.domain.duration import format_duration, parse_duration
from services.core.domain.errors import FieldError, InvalidInput
from services.core.domain.event import listener_name_fault, sender_name_fault
from services.core.domain.json_fault import child_path
from services.core.domain.safe_text import is_storable
from services.core.domain.text_rule import json_type, shown

__all__ = [
    "CancelOn",
    "Checkpoint",
    "ConcurrencyLimit",
    "CronTrigger",
    "Definition",
    "EventTrigger",
    "QueueTrigger",
    "Trigger",
    "definition_from_json",
    "definition_to_json",
    "definitions_list",
    "validate_definitions",
    "version_hash",
]

MAX_WORKFLOWS = 500
NOT_YET = frozenset(("priority", "rate_limit", "throttle", "debounce", "batch", "singleton", "on_failure"))
"""Options of the product that this version does not have: refused by name, never accepted and ignored."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FIELDS = (
    "name",
    "description",
    "triggers",
    "retries",
    "timeout",
    "concurrency",
    "idempotency",
    "cancel_on",
    "checkpoint",
)
_RESERVED_NAMES = frozenset(("app", "sync"))
_CATCH_UP = ("latest", "all", "none")
_DAY_MS = 86_400_000
_MAX_DESCRIPTION = 1000

T = TypeVar("T")


@dataclass(slots=True)
class _Report:
    """What was found so far. `suffix` names the workflow at hand, for a path alone only has its number."""

    strict: bool
    faults: list[FieldError] = field(default_factory=list)
    warnings: list[FieldError] = field(default_factory=list)
    suffix: str = ""

    def fault(self, path: str, message: str) -> None:
        self.faults.append(FieldError(path, message + self.suffix))

    def unknown(self, path: str, known: Sequence[str]) -> None:
        found = FieldError(path, f"unknown field, known are {', '.join(known)}{self.suffix}")
        (self.faults if self.strict else self.warnings).append(found)


def validate_definitions(
    value: object, *, strict_unknown: bool, path: str = "workflows", most: int = MAX_WORKFLOWS
) -> tuple[list[Definition], list[FieldError]]:
    """The definitions of a decoded list, and warnings: the unknown fields, if they do not count as faults.

    `most`: how many workflows the list may have (engine section 8).
    Raises InvalidInput with every fault. The list is accepted or refused as one.
    """
    if not isinstance(value, list):
        raise InvalidInput.of(path, f"must be a list of workflows, not {json_type(value)}")
    if len(value) > most:
        raise InvalidInput.of(path, f"at most {most} workflows a project, these are {len(value)}")
    report = _Report(strict_unknown)
    definitions: list[Definition] = []
    places: dict[str, str] = {}
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        definition = _definition(report, place, item)
        first = places.setdefault(definition.name, place) if definition.name else place
        if first != place:
            report.fault(f"{place}.name", f"{definition.name} is the name of {first} already")
        definitions.append(definition)
    if report.faults:
        raise InvalidInput.of_all(report.faults)
    return definitions, report.warnings


def definitions_list(value: object) -> tuple[object, list[FieldError]]:
    """What to give to `validate_definitions`, of a decoded body or file: the list itself, or `{"workflows": [...]}`.

    Also the unknown members beside `workflows`: warnings, or faults as all that are unknown. Raises InvalidInput for an
    object without the list.
    """
    if not isinstance(value, Mapping):
        return value, []
    if "workflows" not in value:
        raise InvalidInput.of("workflows", "is required: a list of workflows")
    report = _Report(strict=False)
    _object(report, "", value, ("workflows",))
    return value["workflows"], report.warnings


def _definition(report: _Report, path: str, value: object) -> Definition:
    name = value.get("name") if isinstance(value, Mapping) else None
    report.suffix = f" (workflow {name})" if isinstance(name, str) and _NAME.fullmatch(name) else ""
    fields = _object(report, path, value, _FIELDS, NOT_YET) or {}
    name = _name(report, f"{path}.name", name)
    checked = Definition(
        name=name,
        description=_optional(fields, "description", "", lambda text: _description(report, path, text)),
        triggers=_items(report, path, fields, "triggers", 10, _trigger),
        retries=_integer(report, path, fields, "retries", 0, 20, DEFAULT_RETRIES),
        timeout_ms=_duration(report, path, fields, "timeout", 1000, 366 * _DAY_MS, DEFAULT_TIMEOUT_MS),
        concurrency=_optional(fields, "concurrency", (), lambda given: _concurrency(report, path, given)),
        idempotency=_expression(report, path, fields, "idempotency", ("event",)),
        cancel_on=_items(report, path, fields, "cancel_on", 5, _cancel_on),
        checkpoint=_optional(fields, "checkpoint", None, lambda given: _checkpoint(report, path, given)),
    )
    report.suffix = ""
    return checked


def _name(report: _Report, path: str, value: object) -> str:
    if value is None:
        report.fault(path, "is required")
    elif not isinstance(value, str) or not _NAME.fullmatch(value):
        shown = f"{value[:100]!a}" if isinstance(value, str) else json_type(value)
        report.fault(path, f"{shown} is no name: 1–100 letters, digits and . _ - beginning with a letter or digit")
    elif value in _RESERVED_NAMES:
        report.fault(path, f"{value} is reserved")
    else:
        return value
    return ""


def _description(report: _Report, path: str, value: object) -> str:
    if not isinstance(value, str):
        report.fault(f"{path}.description", f"must be a string, not {json_type(value)}")
    elif len(value) > _MAX_DESCRIPTION:
        report.fault(f"{path}.description", f"at most {_MAX_DESCRIPTION} characters, it has {len(value)}")
    elif not is_storable(value):
        report.fault(f"{path}.description", "must hold no NUL and no lone surrogates")
    else:
        return value
    return ""


def _trigger(report: _Report, path: str, value: object) -> Trigger:
    kinds = {"event": ("event", "if"), "cron": ("cron", "timezone", "catch_up"), "queue": ("queue",)}
    given = [kind for kind in kinds if isinstance(value, Mapping) and value.get(kind) is not None]
    if isinstance(value, Mapping) and len(given) != 1:
        report.fault(path, f"must have exactly one of event, cron and queue, it has {' and '.join(given) or 'none'}")
        return QueueTrigger("")
    kind = given[0] if given else "event"
    fields = _object(report, path, value, kinds[kind])
    if fields is None:
        return QueueTrigger("")
    if kind == "cron":
        return _cron(report, path, fields)
    if kind == "queue":
        return QueueTrigger(_event_name(report, f"{path}.queue", fields["queue"], _stream_fault))
    name = _event_name(report, f"{path}.event", fields["event"], listener_name_fault)
    return EventTrigger(name, _expression(report, path, fields, "if", expression.ROOTS))


def _cron(report: _Report, path: str, fields: Mapping[str, Any]) -> CronTrigger:
    timezone, catch_up = fields.get("timezone"), fields.get("catch_up")
    try:
        parse_cron(fields["cron"])
    except CronError as error:
        report.fault(f"{path}.cron", error.message)
    if timezone is not None:
        try:
            load_zone(timezone)
        except CronError as error:
            report.fault(f"{path}.timezone", error.message)
    if catch_up is not None and catch_up not in _CATCH_UP:
        report.fault(f"{path}.catch_up", f"must be one of {', '.join(_CATCH_UP)}, got {shown(catch_up)}")
    return CronTrigger(str(fields["cron"]).strip(" \t"), str(timezone or "UTC"), str(catch_up or "latest"))


def _concurrency(report: _Report, path: str, value: object) -> tuple[ConcurrencyLimit, ...]:
    path = f"{path}.concurrency"
    if not isinstance(value, list):
        return (_limit(report, path, value),)
    if len(value) > 2:
        report.fault(path, f"at most 2 limits, these are {len(value)}")
    return tuple(_limit(report, f"{path}[{index}]", limit) for index, limit in enumerate(value[:2]))


def _limit(report: _Report, path: str, value: object) -> ConcurrencyLimit:
    if isinstance(value, int) and not isinstance(value, bool):
        fields: Mapping[str, Any] | None = {"limit": value}
    else:
        fields = _object(report, path, value, ("limit", "key"))
    if fields is None:
        return ConcurrencyLimit(1)
    if fields.get("limit") is None:
        report.fault(f"{path}.limit", "is required")
    limit = _integer(report, path, fields, "limit", 1, 10_000, 1)
    return ConcurrencyLimit(limit, _expression(report, path, fields, "key", ("event",)))


def _cancel_on(report: _Report, path: str, value: object) -> CancelOn:
    fields = _object(report, path, value, ("event", "match", "if", "timeout"))
    if fields is None:
        return CancelOn("")
    match = fields.get("match")
    if match is not None:
        _try(report, f"{path}.match", expression.match_expression, match)
    timeout_ms = None
    if fields.get("timeout") is not None:
        timeout_ms = _duration(report, path, fields, "timeout", 1, None, 1)
    return CancelOn(
        _event_name(report, f"{path}.event", fields.get("event"), listener_name_fault),
        match=match,
        if_=_expression(report, path, fields, "if", expression.ROOTS),
        timeout_ms=timeout_ms,
    )


def _checkpoint(report: _Report, path: str, value: object) -> Checkpoint:
    path = f"{path}.checkpoint"
    fields = _object(report, path, value, ("max_steps", "max_time"))
    if fields is None:
        return Checkpoint(1)
    if fields.get("max_steps") is None:
        report.fault(f"{path}.max_steps", "is required")
    return Checkpoint(
        _integer(report, path, fields, "max_steps", 1, 1000, 1),
        _duration(report, path, fields, "max_time", 1, 300_000, DEFAULT_CHECKPOINT_MS),
    )


def _object(
    report: _Report, path: str, value: object, known: Sequence[str], not_yet: frozenset[str] = frozenset()
) -> Mapping[str, Any] | None:
    """The members of an object, its unknown ones reported; None, with a fault, for anything else."""
    if not isinstance(value, Mapping):
        report.fault(path, f"must be an object, not {json_type(value)}")
        return None
    for key in value:
        if key in not_yet:
            report.fault(child_path(path, key), "is not supported yet")
        elif key not in known:
            report.unknown(child_path(path, key), known)
    return value


def _items(
    report: _Report,
    path: str,
    fields: Mapping[str, Any],
    name: str,
    most: int,
    check: Callable[[_Report, str, object], T],
) -> tuple[T, ...]:
    value, path = fields.get(name), f"{path}.{name}"
    if value is None:
        return ()
    if not isinstance(value, list):
        report.fault(path, f"must be a list, not {json_type(value)}")
        return ()
    if len(value) > most:
        report.fault(path, f"at most {most}, these are {len(value)}")
    return tuple(check(report, f"{path}[{index}]", item) for index, item in enumerate(value[:most]))


def _optional(fields: Mapping[str, Any], name: str, default: T, check: Callable[[Any], T]) -> T:
    value = fields.get(name)
    return default if value is None else check(value)


def _integer(
    report: _Report, path: str, fields: Mapping[str, Any], name: str, low: int, high: int, default: int
) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        report.fault(f"{path}.{name}", f"must be a whole number, {low}–{high}, got {shown(value)}")
        return default
    return value


def _duration(
    report: _Report, path: str, fields: Mapping[str, Any], name: str, low: int, high: int | None, default: int
) -> int:
    """A duration of `low` to `high` milliseconds."""
    value = fields.get(name)
    if value is None:
        return default
    duration = _try(report, f"{path}.{name}", parse_duration, value)
    if duration is not None and (duration < low or (high is not None and duration > high)):
        allowed = f"{format_duration(low)} to {format_duration(high)}" if high else "longer than zero"
        report.fault(f"{path}.{name}", f"must be {allowed}, got {shown(value)}")
    return default if duration is None else duration


def _expression(report: _Report, path: str, fields: Mapping[str, Any], name: str, roots: Sequence[str]) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    tree = _try(report, f"{path}.{name}", expression.parse, value)
    if tree is not None and not expression.roots(tree) <= set(roots):
        report.fault(f"{path}.{name}", "may only use event: there is no incoming event here")
    return str(value)


def _event_name(report: _Report, path: str, value: object, fault_of: Callable[[object], str | None]) -> str:
    fault = "is required" if value is None else fault_of(value)
    if fault:
        report.fault(path, fault)
    return str(value)


def _stream_fault(value: object) -> str | None:
    """A stream's name becomes part of the event name `queue/<stream>`."""
    return sender_name_fault(f"queue/{value}") if isinstance(value, str) and value else "must be the name of a stream"


def _try(report: _Report, path: str, check: Callable[[Any], T], value: object) -> T | None:
    try:
        return check(value)
    except InvalidInput as error:
        report.fault(path, error.message)
        return None
