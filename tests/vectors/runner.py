"""Runs every vector file of a folder through the engine and through each SDK where it applies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.vectors import (
    cases,
    cron_rows,
    definition_rows,
    duration_rows,
    event_rows,
    expression_rows,
    signature_rows,
    ssrf_rows,
    step_rows,
)
from tests.vectors.check import Check, Unhandled, hang_guard

KNOWN: dict[str, Callable[[Any], Iterator[Check]]] = {
    "cron": cron_rows.checks,
    "definitions": definition_rows.checks,
    "durations": duration_rows.checks,
    "event_names": event_rows.checks,
    "expressions": expression_rows.checks,
    "signatures": signature_rows.checks,
    "ssrf_urls": ssrf_rows.checks,
    "step_ids": step_rows.checks,
    "cases": cases.checks,
}
"""What a file is told by: the beginning of its name."""


@dataclass(slots=True)
class Report:
    """What happened, by id of row and side."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unhandled: dict[str, str] = field(default_factory=dict)
    unknown_files: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing failed and every file was known."""
        return not self.failed and not self.unknown_files

    def lines(self) -> Iterator[str]:
        """The report as text; the last line is `N passed, N failed`."""
        for name in self.unknown_files:
            yield f"UNKNOWN FILE {name}"
        for id, why in self.failed.items():
            yield f"FAILED {id}: {why}"
        for id, why in self.unhandled.items():
            yield f"unhandled {id}: {why}"
        yield f"{len(self.unhandled)} unhandled"
        yield f"{len(self.passed)} passed, {len(self.failed)} failed"


def run_folder(folder: Path) -> Report:
    """Run every file of a folder. Raises OSError if the folder cannot be read."""
    report = Report()
    for path in sorted(folder.iterdir()):
        if path.is_dir() or path.name.startswith("."):
            continue
        rows = _rows_of(path)
        if rows is None:
            report.unknown_files.append(path.name)
            continue
        try:
            checks = list(rows(_read(path)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            report.failed[path.name] = f"not a vector file of its kind: {type(error).__name__}: {error}"
            continue
        for check in checks:
            _run(check, report)
    return report


def _rows_of(path: Path) -> Callable[[Any], Iterator[Check]] | None:
    if path.suffix not in (".json", ".jsonl"):
        return None
    return next((rows for name, rows in KNOWN.items() if path.stem.startswith(name)), None)


def _read(path: Path) -> Any:
    text = path.read_text()
    return (
        [json.loads(line) for line in text.split("\n") if line.strip()] if path.suffix == ".jsonl" else json.loads(text)
    )


def _run(check: Check, report: Report) -> None:
    try:
        with hang_guard():
            check.run()
    except Unhandled as row:
        report.unhandled[check.id] = str(row)
    except Exception as error:
        report.failed[check.id] = (
            str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        )
    else:
        report.passed.append(check.id)
