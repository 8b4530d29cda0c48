"""`python -m services.cli.configuration_page` prints docs/configuration.md, made from the settings classes.

A test compares the page with this output, so the page cannot say anything else than the code does.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from typing import Any

from services.cli.configuration_words import MEANINGS, OUTSIDE, TITLES, WITHOUT_EFFECT
from services.cli.serve import SERVICES
from services.core.domain.duration import format_duration
from services.core.runtime.config import Declaration, declarations
from services.core.runtime.settings import LogSettings, ProcessSettings, TelemetrySettings

_HEAD = """\
# Configuration

All settings are environment variables. A service reads its own once, at the start, and prints them without secrets at
the log level info. A wrong value stops the start (exit code 2) with the variable's name and what is allowed, all faults
at once. An empty variable counts as not set. `runr dev` decides what is not set; see [operations.md](operations.md) for
what a real installation must set. Where several services read a variable, give all of them the same value.

Durations are written `500ms`, `10s`, `5m`, `2h`, `7d`, or as seconds; sizes `262144`, `256KiB`, `1MiB`; booleans `true`
or `false`; lists with commas.

This page is printed by `python -m services.cli.configuration_page`; a test compares it with the code.
"""
_BASE = (ProcessSettings, LogSettings, TelemetrySettings)
_NO_VALUE = "\N{WHITE SQUARE}"
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def page() -> str:
    """The whole page."""
    found = declared()
    parts = [_HEAD]
    for group, title in TITLES.items():
        rows = [each for each in found.values() if each.group.__name__ == group]
        parts.append(_section(title, rows))
    parts.append(_outside())
    return "\n".join(parts)


def declared() -> dict[str, Declaration]:
    """Every variable that a service reads."""
    return {each.variable: each for cls in classes() for each in declarations(cls)}


def classes() -> list[type[Any]]:
    """The settings that every process reads, and those of each service."""
    return [*_BASE, *map(_settings_of, SERVICES)]


def _readers() -> dict[str, str]:
    """Variable → the services that read it."""
    by_variable: dict[str, list[str]] = {}
    for service in SERVICES:
        for each in declarations(_settings_of(service)):
            by_variable.setdefault(each.variable, []).append(service)
    every = {each.variable: "all" for cls in _BASE for each in declarations(cls)}
    return {
        variable: "all" if len(names) == len(SERVICES) else ", ".join(names) for variable, names in by_variable.items()
    } | every


def _settings_of(service: str) -> type[Any]:
    settings: type[Any] = importlib.import_module(f"services.{service}.app").Settings
    return settings


def _section(title: str, rows: Iterable[Declaration]) -> str:
    rows = list(rows)
    readers = _readers()
    lines = [
        f"## {title}",
        "",
        "| variable | default | allowed | read by | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        meaning = MEANINGS[row.variable]
        if row.variable in WITHOUT_EFFECT:
            meaning = f"*Without effect in this version.* {meaning}"
        cells = (f"`{row.variable}`", _default(row), _allowed(row), readers[row.variable], meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _outside() -> str:
    lines = ["## Not read by the services", "", "| variable | read by | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{variable}` | {reader} | {meaning} |" for variable, reader, meaning in OUTSIDE]
    return "\n".join(lines) + "\n"


def _default(row: Declaration) -> str:
    if row.required:
        return "**required**"
    value = row.default
    if value is None or value in ("", ()):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if row.field.endswith(("_s", "_ms")):
        return f"`{_duration(round(value * 1_000) if row.field.endswith('_s') else value)}`"
    return f"`{_size(value) if 'bytes' in _refusal(row) else value}`"


def _allowed(row: Declaration) -> str:
    """What the parser allows, in its own words, with the numbers as a person writes them."""
    text = _refusal(row) or "any text"
    for words in ("must be ", "must have ", "a whole number ", "a duration ", "a size "):
        text = text.removeprefix(words)
    text = re.sub(r"^(from .*), like .*$", r"\1", text)
    text = re.sub(r"([0-9]+) ms\b", lambda match: _duration(int(match[1])), text)
    text = re.sub(r"([0-9.]+) s\b", lambda match: _duration(round(float(match[1]) * 1_000)), text)
    return re.sub(r"from ([0-9]+) to ([0-9]+) bytes", lambda m: f"from {_size(int(m[1]))} to {_size(int(m[2]))}", text)


def _refusal(row: Declaration) -> str:
    """What the parser says of a text that it cannot take; "" if it takes any."""
    try:
        row.parse(_NO_VALUE)
    except ValueError as error:
        return str(error)
    return ""


def _duration(milliseconds: int) -> str:
    """As settings are written: they have no weeks."""
    text = format_duration(milliseconds)
    return f"{7 * int(text[:-1])}d" if text.endswith("w") else text


def _size(count: int) -> str:
    for unit, size in _SIZES:
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}B"


if __name__ == "__main__":
    sys.stdout.write(page())
