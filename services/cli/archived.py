"""What to tell whoever has just made workflows go: whose runs are active still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from services.cli.table import one_line

_WHAT_THEN = (
    "They go on only where it is served still: else those of a function fail after their attempts, those of workers"
    " wait. Serve it again, or cancel them: `runr runs cancel --workflow {name}`"
)


def archived_lines(archived: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each workflow that was archived just now, and behind it a warning where runs of it are active."""
    lines = []
    for each in archived:
        lines.append(f"archived  {one_line(each['name'])}: it starts no new runs")
        lines += archived_warnings([each])
    return lines


def archived_warnings(archived: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each workflow that was archived just now although runs of it are active."""
    names = [(each, one_line(each["name"])) for each in archived if each["active_runs"] != 0 or each["at_least"]]
    return [f"warning   {_active(each, name)}. {_WHAT_THEN.format(name=name)}" for each, name in names]


def _active(archived: Mapping[str, Any], name: str) -> str:
    number, more = archived["active_runs"], " or more" if archived["at_least"] else ""
    if number is None:
        return f"runs of {name} may be active"
    return f"1 run of {name} is active" if number == 1 and not more else f"{number:,}{more} runs of {name} are active"
