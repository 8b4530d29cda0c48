"""Environment variables → frozen dataclasses, read once when a service starts (engine section 11).

A settings class declares each variable with `setting(...)`: name, parser, default, and whether it is a secret. `load`
collects every fault before it refuses; `describe` prints what is in force with the secrets masked. Parsers are in
`services/core/runtime/parse.py`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")

_REQUIRED: Any = object()
_META = "runr.setting"


class ConfigError(Exception):
    """The environment is not usable. `faults` has one line per variable: its name, what is wrong, what is allowed."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclasses.dataclass(frozen=True, slots=True)
class _Setting:
    variable: str
    parse: Callable[[str], Any]
    required: bool
    mask: Callable[[Any], str]


def _plain(value: Any) -> str:
    return "" if value is None else str(value)


def _hidden(value: Any) -> str:
    return "***" if value else ""


def mask_url(value: Any) -> str:
    """A URL without its password and query: both may carry secrets."""
    if not value:
        return ""
    parts = urlsplit(str(value))
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}:***@{host}" if user else host
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def setting(
    variable: str,
    parse: Callable[[str], T],
    default: Any = _REQUIRED,
    *,
    secret: bool = False,
    url: bool = False,
) -> Any:
    """A dataclass field read from `variable`.

    Without `default` the variable must be set. `secret` hides the whole value in `describe` and in the repr, `url` only
    the password in it. `parse` raises ValueError with a text that says what is allowed.
    """
    mask = _hidden if secret else mask_url if url else _plain
    declared = _Setting(variable=variable, parse=parse, required=default is _REQUIRED, mask=mask)
    show = not (secret or url)
    if default is _REQUIRED:
        return dataclasses.field(repr=show, metadata={_META: declared})
    return dataclasses.field(default=default, repr=show, metadata={_META: declared})


def load(cls: type[T], environ: Mapping[str, str]) -> T:
    """Build `cls` (and the settings classes nested in it) from `environ`. Raises ConfigError with every fault found.

    An empty variable counts as not set.
    """
    faults: list[str] = []
    built = _load(cls, environ, faults)
    if faults:
        raise ConfigError(faults)
    return typing.cast(T, built)


def _load(cls: type[Any], environ: Mapping[str, str], faults: list[str]) -> Any:
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    before = len(faults)
    for field in dataclasses.fields(cls):
        declared = field.metadata.get(_META)
        if declared is None:
            if dataclasses.is_dataclass(hints[field.name]):
                values[field.name] = _load(hints[field.name], environ, faults)
            continue
        raw = environ.get(declared.variable, "")
        if raw == "":
            if declared.required:
                faults.append(f"{declared.variable} is not set")
            continue
        try:
            values[field.name] = declared.parse(raw)
        except ValueError as error:
            shown = "" if declared.mask is _hidden else f" (got {declared.mask(raw)!r})"
            faults.append(f"{declared.variable} {error}{shown}")
    if len(faults) > before:
        return None
    try:
        return cls(**values)
    except ValueError as error:
        faults.append(str(error))
        return None


def variables(cls: type[Any]) -> Iterator[str]:
    """The names of all variables that `cls` reads."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        declared = field.metadata.get(_META)
        if declared is not None:
            yield declared.variable
        elif dataclasses.is_dataclass(hints[field.name]):
            yield from variables(typing.cast(type[Any], hints[field.name]))


@dataclasses.dataclass(frozen=True, slots=True)
class Declaration:
    """One variable as its settings class declares it. `default` says nothing where `required`."""

    group: type[Any]
    field: str
    variable: str
    parse: Callable[[str], Any]
    required: bool
    default: Any


def declarations(cls: type[Any]) -> Iterator[Declaration]:
    """Every variable that `cls` and the settings classes nested in it declare, in their order."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        declared = field.metadata.get(_META)
        if declared is not None:
            yield Declaration(cls, field.name, declared.variable, declared.parse, declared.required, field.default)
        elif dataclasses.is_dataclass(hints[field.name]):
            yield from declarations(typing.cast(type[Any], hints[field.name]))


def describe(settings: Any) -> dict[str, str]:
    """Variable → value in force, secrets masked: what a service prints at its start."""
    shown: dict[str, str] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        declared = field.metadata.get(_META)
        if declared is not None:
            shown[declared.variable] = declared.mask(value)
        elif dataclasses.is_dataclass(value):
            shown.update(describe(value))
    return shown
