"""`runr runs logs`: what happened to a run, line by line in the order in which it did, and with -f what happens."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient
from services.cli.runs.following import changes
from services.cli.table import one_line
from services.core.runtime.service import EXIT_FAILED, EXIT_OK

_COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened. `at` is a time as the API writes it, `step` empty for the run itself."""

    at: str
    step: str
    said: str

    def shown(self) -> str:
        """For people."""
        return f"{self.at}  {f'{one_line(self.step)}  ' if self.step else ''}{one_line(self.said)}\n"

    def to_json(self, run_id: str) -> str:
        """For programs."""
        return json.dumps({"at": self.at, "run": run_id, "step": self.step or None, "said": self.said}) + "\n"


class Log:
    """Prints each line of a run once, however often it is told of the run."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._seen: set[Line] = set()

    def tell(self, run: Mapping[str, Any], steps: list[Mapping[str, Any]]) -> None:
        """The lines that are new, in their order."""
        # Of what happened within a millisecond nothing but its place in the run tells which was first.
        new = sorted((line for line in lines(run, steps) if line not in self._seen), key=attrgetter("at"))
        for line in new:
            sys.stdout.write(line.to_json(run["id"]) if self._as_json else line.shown())
        sys.stdout.flush()
        self._seen.update(new)


async def logs(api: ApiClient, given: argparse.Namespace) -> int:
    """One run's lines; with --follow until it ends, and then 1 unless it has completed."""
    log = Log(as_json=given.json)
    if not given.follow:
        run = await api.call("GET", f"/api/runs/{quote(given.run, safe='')}")
        log.tell(run, run["steps"])
        return EXIT_OK
    status = ""
    async with aclosing(changes(api, given.run)) as told:
        async for change in told:
            log.tell(change.run, change.steps)
            status = change.run["status"]
    return EXIT_OK if status == _COMPLETED else EXIT_FAILED


def lines(run: Mapping[str, Any], steps: list[Mapping[str, Any]]) -> Iterator[Line]:
    """What the API tells of a run and of steps of it, as far as it has a time: the run, step by step, its end."""
    yield Line(run["created_at"], "", f"created {run['workflow']}, {run['source']}")
    if run["started_at"]:
        yield Line(run["started_at"], "", "started")
    for attempt in run["attempts"]:
        if attempt["error"]:
            yield _failed(attempt, "", "function attempt")
    for step in steps:
        yield from _of_step(step)
    if run["ended_at"]:
        yield Line(run["ended_at"], "", _end(run))


def _of_step(step: Mapping[str, Any]) -> Iterator[Line]:
    name = step["id"]
    if step["started_at"]:
        child = f", run {step['child_run_id']}" if step["child_run_id"] else ""
        yield Line(step["started_at"], name, f"{step['kind']} started{child}")
    for attempt in step["attempts"]:
        if attempt["error"]:
            yield _failed(attempt, name, "attempt")
    if step["ended_at"]:
        yield Line(step["ended_at"], name, _end(step))


def _failed(attempt: Mapping[str, Any], step: str, what: str) -> Line:
    at = attempt["ended_at"] or attempt["started_at"]
    return Line(at, step, f"{what} {attempt['attempt']} failed: {_error(attempt['error'])}")


def _end(of: Mapping[str, Any]) -> str:
    if of.get("timed_out"):
        return f"{of['status']}: its time was up before an event came"
    return f"{of['status']}: {_error(of['error'])}" if of["error"] else str(of["status"])


def _error(error: Mapping[str, Any]) -> str:
    return f"{error['name']}: {error['message']}"
