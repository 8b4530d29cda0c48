"""A run as text: its steps in order, with attempts and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

_HEAD = f"  {'step':<22} {'kind':<15} {'status':<10} {'attempts':>8} {'from':>9} {'to':>9}"


def timeline(run: Mapping[str, Any]) -> str:
    """The timeline of a run as `GET /runs/{id}` shows it; times are seconds since the run was created."""
    created = _instant(run["created_at"])
    lines = [f"Run {run['id']} of {run['workflow']}: {run['status']}", _HEAD]
    for step in run["steps"]:
        lines.append(
            f"  {step['id']:<22} {step['kind']:<15} {step['status']:<10} {len(step['attempts']) or 1:>8}"
            f" {_offset(step['started_at'], created)} {_offset(step['ended_at'], created)}"
        )
        lines += [_fault("attempt", attempt, created) for attempt in step["attempts"] if attempt["error"]]
    lines += [_fault("function attempt", attempt, created) for attempt in run["attempts"] if attempt["error"]]
    return "\n".join(lines) + "\n"


def _fault(what: str, attempt: Mapping[str, Any], created: datetime | None) -> str:
    error = attempt["error"]
    when = _offset(attempt["ended_at"] or attempt["started_at"], created).strip()
    return f"    {what} {attempt['attempt']} failed at {when}: {error['name']}: {error['message']}"


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _offset(text: str | None, created: datetime | None) -> str:
    at = _instant(text)
    return f"{(at - created).total_seconds():>8.2f}s" if at and created else f"{'-':>9}"
