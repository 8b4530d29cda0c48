"""Options that nobody knows are refused by name: with what there is, and with what may have been meant.

An option that was dropped in silence would be worst where money moves: a key that is none starts a second run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from importlib import import_module
from itertools import chain
from typing import Any, TypeVar, cast

from .errors import UnknownOptionError
from .shown import shown

NOT_YET = ("priority", "rate_limit", "throttle", "debounce", "batch", "singleton", "on_failure")
"""Options of the product that this version does not have."""

_ALIKE = (
    ("key", "idempotency_key", "id", "idempotency", "event_id", "dedup_key", "deduplication_id", "request_id"),
    ("retries", "retry", "max_retries", "attempts", "max_attempts"),
    ("data", "payload", "input", "body", "args", "params"),
    ("delay", "after", "countdown", "run_in", "wait"),
    ("at", "eta", "run_at", "when", "scheduled_at"),
    ("ts", "timestamp", "time", "occurred_at"),
    ("since", "from", "from_", "start", "created_after"),
    ("until", "to", "end", "created_before"),
    ("page_size", "limit", "per_page", "count"),
    ("if_", "if", "condition", "filter"),
    ("grace", "drain_seconds", "grace_seconds", "shutdown_timeout", "timeout"),
    ("max_concurrency", "concurrency", "workers"),
    ("signing_key", "secret", "key"),
    ("token", "api_key", "secret", "auth"),
    ("url", "base_url", "address", "endpoint", "host"),
    ("name", "event", "type", "event_name"),
)
"""Names that other systems, or other places of this SDK, have for the same thing."""

Function = TypeVar("Function", bound=Callable[..., Any])


def unknown(name: object, allowed: Collection[str]) -> str:
    """What is said of an option behind its name: `unknown (did you mean retries?); allowed are …`."""
    listed = f"allowed are {', '.join(allowed)}"
    if not isinstance(name, str):
        return f"unknown; {listed}"
    plain = re.sub("([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    if plain in NOT_YET:
        return f"is not supported yet; {listed}"
    meant = _meant(plain, allowed)
    return f"unknown; {listed}" if meant is None else f"unknown (did you mean {meant}?); {listed}"


def named(name: object) -> str:
    """The name of a member as messages show it."""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 50 else shown(name)


def refuse_unknown(
    given: Collection[object], allowed: Collection[str], prefix: str = "", error: type[Exception] = UnknownOptionError
) -> None:
    """Raises `error` with all names that are not allowed. `prefix` is the path of what they are given to."""
    faults = [f"{prefix}{named(name)}: {unknown(name, allowed)}" for name in given if name not in allowed]
    if faults:
        raise error("; ".join(faults))


def known_options(*more: type, error: type[Exception] = UnknownOptionError) -> Callable[[Function], Function]:
    """Makes a function refuse the named arguments that it does not have, before it does anything.

    `more` are the TypedDicts of its `**options: Unpack[…]`, which Python does not check.
    """

    def decorate(fn: Function) -> Function:
        allowed = _parameters(fn, more)

        def check(options: Mapping[str, object]) -> None:
            if not allowed.keys() >= options.keys():
                refuse_unknown(options, allowed, error=error)

        @wraps(fn)
        def called(*args: Any, **options: Any) -> Any:
            check(options)
            return fn(*args, **options)

        @wraps(fn)
        async def awaited(*args: Any, **options: Any) -> Any:
            check(options)
            return await fn(*args, **options)

        return cast(Function, awaited if inspect.iscoroutinefunction(fn) else called)

    return decorate


def _parameters(fn: Callable[..., Any], more: Collection[type]) -> dict[str, None]:
    """The names that a function takes by name, in order."""
    code = fn.__code__
    own = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    names = chain(own, *(each.__annotations__ for each in more))
    return dict.fromkeys(name for name in names if name != "self")


def _meant(plain: str, allowed: Collection[str]) -> str | None:
    """The option of which this may be another name, or a slip."""
    if plain in allowed:
        return plain
    for group in _ALIKE:
        if plain in group:
            found = next((name for name in group if name in allowed), None)
            if found is not None:
                return found
    near: list[str] = import_module("difflib").get_close_matches(plain, allowed, n=1)
    return near[0] if near else None
