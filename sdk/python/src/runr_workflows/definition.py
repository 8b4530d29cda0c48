"""Workflow definitions: the options of `@wf.workflow`, checked when the decorator runs (engine section 1).

Names of events and time zones are judged by the engine at sync; here only what can be known without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NotRequired, Required, TypedDict

from .duration import duration_field, parse_duration
from .errors import DefinitionError, Duration, StepArgumentError

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


_Check = Callable[[object, str], Iterator[str]]
"""Yields the faults of a value at a path."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_RESERVED = ("app", "sync")
_TRIGGERS: dict[str, tuple[str, ...]] = {"event": ("if",), "cron": ("timezone", "catch_up"), "queue": ()}
_CATCH_UP = ("latest", "all", "none")
_LONGEST_EXPRESSION = 1000
_DAY_MS = 86_400_000


def build_definition(name: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The definition for the introspect answer; options that are None are left out.

    Raises DefinitionError with every fault found.
    """
    given = {key: value for key, value in options.items() if value is not None}
    faults = list(_name_faults(name))
    for key, value in given.items():
        faults.extend(_CHECKS[key](value, key))
    if faults:
        raise DefinitionError(name, faults)
    return {"name": name, **{key: _plain(value) for key, value in given.items()}}


def _name_faults(name: object) -> Iterator[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "name: 1 to 100 letters, digits and . _ -, beginning with a letter or digit"
    elif name in _RESERVED:
        yield f"name: {name!r} is reserved"


def _description(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, str) or len(value) > 1000:
        yield f"{path}: a text of at most 1,000 characters"


def _triggers(value: object, path: str) -> Iterator[str]:
    yield from _each(value, path, 10, _trigger)


def _trigger(value: object, path: str) -> Iterator[str]:
    kinds = [kind for kind in _TRIGGERS if isinstance(value, Mapping) and kind in value]
    if not isinstance(value, Mapping) or len(kinds) != 1:
        yield f"{path}: an object with exactly one of event, cron and queue, like {{'event': 'order.created'}}"
        return
    allowed = (kinds[0], *_TRIGGERS[kinds[0]])
    yield from _unknown(value, path, allowed)
    for key in (key for key in allowed if key in value):
        yield from _TRIGGER_TEXTS.get(key, _text)(value[key], f"{path}.{key}")


def _retries(value: object, path: str) -> Iterator[str]:
    yield from _integer(value, path, 0, 20)


def _timeout(value: object, path: str) -> Iterator[str]:
    yield from _duration(value, path, 1000, 366 * _DAY_MS, "from 1s to 366d")


def _concurrency(value: object, path: str) -> Iterator[str]:
    if isinstance(value, list | tuple):
        yield from _each(value, path, 2, _limit)
    else:
        yield from _limit(value, path)


def _limit(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield from _integer(value, path, 1, 10_000)
        return
    yield from _integer(value.get("limit"), f"{path}.limit", 1, 10_000)
    yield from _unknown(value, path, ("limit", "key"))
    if "key" in value:
        yield from _of_trigger(value["key"], f"{path}.key")


def _cancel_on(value: object, path: str) -> Iterator[str]:
    yield from _each(value, path, 5, _cancel)


def _cancel(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path}: an object like {{'event': 'order.cancelled', 'match': 'data.order_id'}}"
        return
    yield from _text(value.get("event"), f"{path}.event")
    yield from _unknown(value, path, ("event", "match", "if", "timeout"))
    if "match" in value:
        yield from _match(value["match"], f"{path}.match")
    if "if" in value:
        yield from _condition(value["if"], f"{path}.if")
    if "timeout" in value:
        yield from _duration(value["timeout"], f"{path}.timeout", 1, 366 * _DAY_MS, "up to 366d")


def _checkpoint(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path}: an object like {{'max_steps': 50, 'max_time': '5s'}}"
        return
    yield from _unknown(value, path, ("max_steps", "max_time"))
    yield from _integer(value.get("max_steps"), f"{path}.max_steps", 1, 1000)
    if "max_time" in value:
        yield from _duration(value["max_time"], f"{path}.max_time", 1, 300_000, "longer than zero and up to 5m")


def _each(value: object, path: str, most: int, check: _Check) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        yield f"{path}: a list, not {type(value).__name__}"
    elif len(value) > most:
        yield f"{path}: at most {most} entries, not {len(value)}"
    else:
        for index, item in enumerate(value):
            yield from check(item, f"{path}[{index}]")


def _unknown(item: Mapping[str, object], path: str, allowed: tuple[str, ...]) -> Iterator[str]:
    for key in item:
        if key not in allowed:
            yield f"{path}.{key}: unknown; allowed are {', '.join(allowed)}"


def _text(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, str) or not value or len(value) > _LONGEST_EXPRESSION:
        yield f"{path}: a non-empty text of at most 1,000 characters"


def _condition(value: object, path: str) -> Iterator[str]:
    """An expression over both events."""
    yield from _judged(value, path, lambda text: _grammar().parse(text))


def _of_trigger(value: object, path: str) -> Iterator[str]:
    """An expression where there is no incoming event."""
    yield from _judged(value, path, lambda text: _grammar().parse(text, only="event"))


def _match(value: object, path: str) -> Iterator[str]:
    yield from _judged(value, path, lambda text: _grammar().parse_match(text))


def _judged(value: object, path: str, check: Callable[[str], object]) -> Iterator[str]:
    faults = list(_text(value, path))
    yield from faults
    if not faults:
        assert isinstance(value, str)
        try:
            check(value)
        except ValueError as fault:
            yield f"{path}: {fault}"


def _grammar() -> Any:
    """That of expressions, which most programs do without: a program that serves starts sooner without it."""
    return import_module(".expression", __package__)


def _cron(value: object, path: str) -> Iterator[str]:
    faults = list(_text(value, path))
    yield from faults
    if not faults:
        fault = import_module(".cron_line", __package__).cron_fault(value)
        if fault is not None:
            yield f"{path}: {fault}"


def _catch_up(value: object, path: str) -> Iterator[str]:
    if value not in _CATCH_UP:
        yield f"{path}: one of {', '.join(_CATCH_UP)}, not {value!r:.50}"


def _integer(value: object, path: str, low: int, high: int) -> Iterator[str]:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        yield f"{path}: an integer from {low} to {high:,}, not {value!r:.50}"


def _duration(value: object, path: str, low: int, high: int, allowed: str) -> Iterator[str]:
    try:
        milliseconds = parse_duration(value)
    except StepArgumentError as error:
        yield f"{path}: {error}"
        return
    if not low <= milliseconds <= high:
        yield f"{path}: {allowed}, not {value!r:.50}"


_TRIGGER_TEXTS: dict[str, _Check] = {"if": _condition, "cron": _cron, "catch_up": _catch_up}

_CHECKS: dict[str, _Check] = {
    "description": _description,
    "triggers": _triggers,
    "retries": _retries,
    "timeout": _timeout,
    "concurrency": _concurrency,
    "idempotency": _of_trigger,
    "cancel_on": _cancel_on,
    "checkpoint": _checkpoint,
}


def _plain(value: Any) -> Any:
    """As JSON: timedeltas become milliseconds with their unit."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else duration_field(value, "duration")
