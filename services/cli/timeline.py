"""A run as text: its steps in order, with attempts and times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from services.cli.table import one_line

_NARROWEST, _WIDEST = 22, 60


def timeline(run: Mapping[str, Any]) -> str:
    """The timeline of a run as `GET /runs/{id}` shows it; times are seconds since the run was created."""
    why = f"  it {one_line(run['waiting_for']['message'])}\n" if run["waiting_for"] else ""
    return f"{heading(run)}\n{why}{steps_shown(run)}"


def heading(run: Mapping[str, Any]) -> str:
    """The run in one line."""
    return f"Run {run['id']} of {run['workflow']}: {run['status']}"


def steps_shown(run: Mapping[str, Any]) -> str:
    """The steps of a run, a line each, below it what is to be known about it, and between them failed attempts of the
    function, before what began after them.
    """
    created = instant(run["created_at"])
    width = min(max([_NARROWEST, *(len(step["id"]) for step in run["steps"])]), _WIDEST)
    lines = [f"  {'step':<{width}} {'kind':<15} {'status':<10} {'attempts':>8} {'from':>9} {'to':>9}"]
    lost = deque(attempt for attempt in run["attempts"] if attempt["error"])
    for step in run["steps"]:
        while lost and step["started_at"] and _failed_at(lost[0]) <= step["started_at"]:
            lines.append(_lost(lost.popleft(), created))
        lines.append(
            f"  {one_line(step['id']):<{width}} {step['kind']:<15} {step['status']:<10}"
            f" {len(step['attempts']) or 1:>8}"
            f" {_offset(step['started_at'], created)} {_offset(step['ended_at'], created)}"
        )
        lines += [f"    {_fault('attempt', attempt, created)}" for attempt in step["attempts"] if attempt["error"]]
        lines += [f"    {note}" for note in _notes(step)]
    lines += [_lost(attempt, created) for attempt in lost]
    return "\n".join(lines) + "\n"


def _notes(step: Mapping[str, Any]) -> Iterator[str]:
    """What an open step is about, that no event came, and the run that it started."""
    wait = step["wait"]
    if step["status"] == "waiting" and wait and wait["event"]:
        condition = f" if {one_line(wait['condition'])}" if wait["condition"] else ""
        until = f" until {wait['timeout_at']}" if wait["timeout_at"] else ""
        yield f"waits for {one_line(wait['event'])}{condition}{until}"
        yield from (f"warning: {one_line(warning)}" for warning in wait["warnings"])
    elif step["ended_at"] is None and step["wake_at"]:
        yield f"{'next attempt at' if step['status'] == 'retrying' else 'until'} {step['wake_at']}"
    if step["timed_out"]:
        yield "its time was up before an event came: the result is null"
    if step["child_run_id"]:
        yield f"run {step['child_run_id']}"


def _fault(what: str, attempt: Mapping[str, Any], created: datetime | None) -> str:
    error = attempt["error"]
    when = _offset(_failed_at(attempt), created).strip()
    said = one_line(f"{error['name']}: {error['message']}")
    return f"{what} {attempt['attempt']} failed at {when}: {said}"


def _lost(attempt: Mapping[str, Any], created: datetime | None) -> str:
    """An attempt of the function: where it was, and since when, is not to be seen from any step. When it began is not
    always known, and then told as when it ended.
    """
    since = _offset(attempt["started_at"], created).strip()
    known = [f"began at {since}"] if attempt["started_at"] != attempt["ended_at"] else []
    known += [f"in step {one_line(attempt['step_id'])}"] if attempt["step_id"] else []
    return "  " + _fault("function attempt", attempt, created) + (f" ({' '.join(known)})" if known else "")


def _failed_at(attempt: Mapping[str, Any]) -> str:
    return str(attempt["ended_at"] or attempt["started_at"])


def instant(text: str | None) -> datetime | None:
    """A time as the API writes it."""
    return datetime.fromisoformat(text) if text else None


def _offset(text: str | None, created: datetime | None) -> str:
    at = instant(text)
    return f"{(at - created).total_seconds():>8.2f}s" if at and created else f"{'-':>9}"
