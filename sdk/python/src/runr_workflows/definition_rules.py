"""What the options of a workflow may be (engine section 1).

What the engine takes is taken, and what it refuses is refused, in all but time zones: it may know others than this
machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from .duration import MAX_MS, parse_duration
from .errors import StepArgumentError
from .event_names import listener_fault, stream_fault
from .known_options import named, unknown
from .shown import faulty, shown

_Check = Callable[[object, str], Iterator[str]]
"""Yields the faults of a value at a path."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9+_-]+(?:/[A-Za-z0-9+_-]+)*", re.ASCII)
_RESERVED = ("app", "sync")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CATCH_UP = ("latest", "all", "none")
_LONGEST_EXPRESSION = 1000
_DAY_MS = 86_400_000


def workflow_name_fault(name: object) -> str | None:
    """Why no workflow may have this name; None if one may."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "1 to 100 letters, digits and . _ - beginning with a letter or digit"
    return f"{name!r} is reserved" if name in _RESERVED else None


def _description(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, str) or len(value) > 1000:
        yield f"{path}: a text of at most 1,000 characters, not {_described(value)}"
    elif _UNSTORABLE.search(value):
        yield f"{path}: a text without NUL and lone surrogates, not {shown(value)}"


def _triggers(value: object, path: str) -> Iterator[str]:
    yield from _each(value, path, 10, _trigger)


def _trigger(value: object, path: str) -> Iterator[str]:
    kinds = [kind for kind in _TRIGGERS if isinstance(value, Mapping) and value.get(kind) is not None]
    if not isinstance(value, Mapping) or len(kinds) != 1:
        like = "{'event': 'order.created'}"
        yield f"{path}: an object with exactly one of event, cron and queue, like {like}, not {shown(value)}"
        return
    given = {key: item for key, item in value.items() if item is not None or key not in _TRIGGERS}
    yield from _members(given, path, _TRIGGERS[kinds[0]])


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
    if isinstance(value, int) and not isinstance(value, bool):
        yield from _most(value, f"{path}.limit")
    elif not isinstance(value, Mapping):
        like = "{'limit': 5, 'key': 'event.data.customer_id'}"
        yield f"{path}: an integer from 1 to 10,000, or an object like {like}, not {shown(value)}"
    else:
        yield from _required(value, path, "limit", _LIMIT)


def _most(value: object, path: str) -> Iterator[str]:
    yield from _integer(value, path, 1, 10_000)


def _cancel_on(value: object, path: str) -> Iterator[str]:
    yield from _each(value, path, 5, _cancel)


def _cancel(value: object, path: str) -> Iterator[str]:
    yield from _object(value, path, "{'event': 'order.cancelled', 'match': 'data.order_id'}", "event", _CANCEL)


def _within(value: object, path: str) -> Iterator[str]:
    yield from _duration(value, path, 1, MAX_MS, "longer than zero")


def _checkpoint(value: object, path: str) -> Iterator[str]:
    yield from _object(value, path, "{'max_steps': 50, 'max_time': '5s'}", "max_steps", _CHECKPOINT)


def _max_steps(value: object, path: str) -> Iterator[str]:
    yield from _integer(value, path, 1, 1000)


def _max_time(value: object, path: str) -> Iterator[str]:
    yield from _duration(value, path, 1, 300_000, "longer than zero and up to 5m")


def _each(value: object, path: str, most: int, check: _Check) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        yield f"{path}: a list, not {shown(value)}"
        return
    if len(value) > most:
        yield f"{path}: at most {most} entries, not {len(value)}"
    for index, item in enumerate(value[:most]):
        yield from check(item, f"{path}[{index}]")


def _object(value: object, path: str, like: str, name: str, checks: Mapping[str, _Check]) -> Iterator[str]:
    """As `_required`, of what may be no object at all."""
    if isinstance(value, Mapping):
        yield from _required(value, path, name, checks)
    else:
        yield f"{path}: an object like {like}, not {shown(value)}"


def _required(item: Mapping[str, object], path: str, name: str, checks: Mapping[str, _Check]) -> Iterator[str]:
    """As `_members`; the member of this name must be there."""
    if item.get(name) is None:
        yield from checks[name](None, f"{path}.{name}")
    yield from _members(item, path, checks)


def _members(item: Mapping[str, object], path: str, checks: Mapping[str, _Check]) -> Iterator[str]:
    """Checks the members of an object that are given, and refuses others."""
    for key, value in item.items():
        if key not in checks:
            yield f"{path}.{named(key)}: {unknown(key, checks)}"
        elif value is not None:
            yield from checks[key](value, f"{path}.{key}")


def _text(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, str) or not value or len(value) > _LONGEST_EXPRESSION:
        yield f"{path}: a non-empty text of at most 1,000 characters, not {_described(value)}"


def _event_name(value: object, path: str) -> Iterator[str]:
    fault = "the name of an event" if value is None else listener_fault(value)
    if fault is not None:
        yield f"{path}: {faulty(value, fault)}"


def _stream(value: object, path: str) -> Iterator[str]:
    fault = stream_fault(value)
    if fault is not None:
        yield f"{path}: {faulty(value, fault)}"


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
            yield f"{path}: {fault}, in {shown(value, 100)}"


def _grammar() -> Any:
    """That of expressions, which most programs do without: a program that serves starts sooner without it."""
    return import_module(".expression", __package__)


def _cron(value: object, path: str) -> Iterator[str]:
    faults = list(_text(value, path))
    yield from faults
    if not faults:
        fault = import_module(".cron_line", __package__).cron_fault(value)
        if fault is not None:
            yield f"{path}: {fault}, in {shown(value, 100)}"


def _timezone(value: object, path: str) -> Iterator[str]:
    if not isinstance(value, str) or not _ZONE.fullmatch(value):
        yield f"{path}: an IANA timezone, exactly spelled, such as Europe/Istanbul or UTC, not {shown(value)}"


def _catch_up(value: object, path: str) -> Iterator[str]:
    if value not in _CATCH_UP:
        yield f"{path}: one of {', '.join(_CATCH_UP)}, not {shown(value)}"


def _integer(value: object, path: str, low: int, high: int) -> Iterator[str]:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        yield f"{path}: an integer from {low} to {high:,}, not {shown(value)}"


def _duration(value: object, path: str, low: int, high: int, allowed: str) -> Iterator[str]:
    try:
        milliseconds = parse_duration(value)
    except StepArgumentError as error:
        yield f"{path}: {error}"
        return
    if not low <= milliseconds <= high:
        yield f"{path}: {allowed}, not {shown(value)}"


def _described(value: object) -> str:
    """A value of which the size may be what is wrong."""
    if not isinstance(value, str):
        return shown(value)
    return f"{len(value):,} characters" if value else "an empty one"


_TRIGGERS: dict[str, dict[str, _Check]] = {
    "event": {"event": _event_name, "if": _condition},
    "cron": {"cron": _cron, "timezone": _timezone, "catch_up": _catch_up},
    "queue": {"queue": _stream},
}
_LIMIT: dict[str, _Check] = {"limit": _most, "key": _of_trigger}
_CANCEL: dict[str, _Check] = {"event": _event_name, "match": _match, "if": _condition, "timeout": _within}
_CHECKPOINT: dict[str, _Check] = {"max_steps": _max_steps, "max_time": _max_time}
CHECKS: dict[str, _Check] = {
    "description": _description,
    "triggers": _triggers,
    "retries": _retries,
    "timeout": _timeout,
    "concurrency": _concurrency,
    "idempotency": _of_trigger,
    "cancel_on": _cancel_on,
    "checkpoint": _checkpoint,
}
