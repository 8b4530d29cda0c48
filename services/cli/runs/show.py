"""One run for people: what it is, its steps with attempts, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from services.cli.table import one_line
from services.cli.timeline import heading, instant, steps_shown

COLUMNS = ("RUN", "WORKFLOW", "STATUS", "CREATED", "TOOK", "KEY OR ERROR")
_LONGEST = 2_000


def run_shown(text: str) -> str:
    """The answer of `GET /runs/{id}` as text. Payloads are as they are stored; a long one is cut, and says so."""
    run = json.loads(text)
    written = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    lines = [heading(run), *(f"  {word:<10} {one_line(said)}" for word, said in _facts(run))]
    if run["event"]:
        event = msgspec.json.decode(written["event"], type=dict[str, msgspec.Raw])
        lines.append(f"  {'data':<10} {_payload(event['data'])}")
    end = [f"  {'output':<10} {_payload(written['output'])}\n"] if run["status"] == "completed" else []
    return "".join(["\n".join(lines), "\n\n", steps_shown(run), *(["\n", *end] if end else [])])


def run_row(run: Mapping[str, Any]) -> Sequence[str]:
    """A run in one line of a table of `COLUMNS`."""
    began, ended = instant(run["started_at"]), instant(run["ended_at"])
    took = f"{(ended - began).total_seconds():.2f}s" if began and ended else "-"
    return run["id"], run["workflow"], run["status"], str(run["created_at"]), took, _most_telling(run)


def _most_telling(run: Mapping[str, Any]) -> str:
    """Why a run has ended badly, or does not go on, or else its key."""
    if run["error"]:
        return f"{run['error']['name']}: {run['error']['message']}"
    why = run["waiting_for"]["message"] if run["waiting_for"] else ""
    return f"{run['idempotency_key'] or ''} {why}".strip()


def _facts(run: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    event, error = run["event"], run["error"]
    yield "source", f"{run['source']}{', a test' if run['test'] else ''}, project {run['project']}"
    if event:
        yield "event", f"{event['name']} {event['id']}"
    for name in ("created", "started", "ended"):
        if run[f"{name}_at"]:
            yield name, run[f"{name}_at"]
    yield from _ahead(run)
    for word, name in (("key", "idempotency_key"), ("parent", "parent_run_id"), ("replay of", "replay_of_run_id")):
        if run[name]:
            yield word, run[name]
    if run["tags"]:
        yield "tags", ", ".join(run["tags"])
    for child in run["children"]:
        yield "child", f"{child['id']} of {child['workflow']}, {child['status']}"
    if error:
        yield "error", f"{error['name']}: {error['message']}"


def _ahead(run: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What an active run waits for, and until when."""
    if run["ended_at"] is not None:
        return
    if run["waiting_for"]:
        yield "waiting", f"it {run['waiting_for']['message']}"
    for word, name in (("due", "due_at"), ("times out", "timeout_at")):
        if run[name]:
            yield word, run[name]


def _payload(written: msgspec.Raw) -> str:
    text = bytes(written).decode()
    cut = len(text) - _LONGEST
    return text if cut <= 0 else f"{text[:_LONGEST]} … {cut} characters more: --json"
