"""What can be said to `runr runs`, `runr events` and the verbs of `runr workflows` about what is stored."""

from __future__ import annotations

import argparse
from typing import Any

_LIMIT = 50
_DATA_HELP = "JSON, or @FILE, or - for stdin"


def add_place(part: argparse.ArgumentParser, *, project: bool = True) -> None:
    """Whose things are meant."""
    if project:
        part.add_argument("--project", metavar="SLUG", help="the project (default: the context's, or default)")
    part.add_argument("--tenant", metavar="SLUG", help="one of the token's tenants (default: its own)")
    part.add_argument("--context", metavar="NAME", help="which API: a name of `runr contexts list`, or dev")
    part.set_defaults(has_project=project)


def add_runs(commands: Any) -> None:
    """`runr runs`."""
    verbs = verbs_of(commands.add_parser("runs", help="look at runs, start them, let them go on"))

    part = verbs.add_parser("list", help="runs, newest first")
    add_place(part)
    _add_filter(part)
    add_paging(part)
    add_json(part)

    part = verbs.add_parser("show", help="one run: its steps with attempts and times, its output or error")
    part.add_argument("run", metavar="RUN", help="the id of a run")
    add_place(part, project=False)
    _add_wait(part, "wait for its end first; exit code 1 unless it completes")
    add_json(part)

    part = verbs.add_parser("logs", help="what happened to a run, line by line")
    part.add_argument("run", metavar="RUN", help="the id of a run")
    add_place(part, project=False)
    part.add_argument(
        "-f", "--follow", action="store_true", help="go on until it has ended; exit code 1 unless it completes"
    )
    add_json(part, "print a JSON object for each line")

    part = verbs.add_parser("start", help="start a run of a workflow")
    part.add_argument("workflow", metavar="WORKFLOW")
    add_place(part)
    part.add_argument("--data", metavar="JSON", help=f"the event's data: {_DATA_HELP} (default: {{}})")
    part.add_argument("--key", metavar="KEY", help="idempotency key: with one that is known, that run is the answer")
    when = part.add_mutually_exclusive_group()
    when.add_argument("--delay", metavar="DURATION", help="start it later, as 10m")
    when.add_argument("--at", metavar="TIME", help="start it at a time, as 2026-10-31T08:00:00Z")
    part.add_argument("--tag", metavar="TAG", action="append", default=[], help="a tag of the run; repeat")
    part.add_argument("--test", action="store_true", help="mark it as a test run")
    _add_wait(part, "wait for its end and print its output; exit code 1 unless it completes")
    add_json(part)

    for verb, does in (
        ("cancel", "cancel active runs"),
        ("retry", "let runs that failed, timed out or were cancelled go on from where they stopped"),
        ("replay", "start new runs with the same events"),
    ):
        _add_change(verbs, verb, does)

    part = verbs.add_parser("job", help="how far a bulk job is")
    part.add_argument("job", metavar="JOB", help="its id, as cancel, retry or replay by a filter have said it")
    add_place(part, project=False)
    part.add_argument("--stop", action="store_true", help="stop it; what it has done stays done")
    _add_wait(part, "wait for its end; exit code 1 unless all its runs were done")
    add_json(part)


def _add_change(verbs: Any, verb: str, does: str) -> None:
    part = verbs.add_parser(verb, help=does, description=f"{does}: those that are named, or all that a filter finds.")
    part.add_argument("run", metavar="RUN", nargs="*", help="ids of runs")
    add_place(part)
    _add_filter(part)
    part.add_argument("--dry-run", action="store_true", help="count the runs that the filter finds, and do nothing")
    if verb == "cancel":
        part.add_argument("--keep-children", action="store_true", help="their children go on")
    if verb == "replay":
        part.add_argument("--from-step", metavar="STEP", help="keep the results of the steps before this one")
        part.add_argument("--data", metavar="JSON", help=f"other data of the event: {_DATA_HELP}")
    _add_wait(part, "wait for the ends of the runs, or of the job that does what a filter finds")
    add_json(part)


def add_events(commands: Any) -> None:
    """`runr events`."""
    verbs = verbs_of(commands.add_parser("events", help="send events and look at them"))

    part = verbs.add_parser("send", help="send an event")
    part.add_argument("name", metavar="NAME", nargs="?", help="its name, as order.created")
    add_place(part, project=False)
    part.add_argument("--data", metavar="JSON", help=f"its data: {_DATA_HELP} (default: {{}})")
    part.add_argument("--id", metavar="ID", help="your id of it: a second one with this id does nothing")
    part.add_argument("--file", metavar="FILE", help="send the event, or the list of events, in this file; - for stdin")
    part.add_argument("--test", action="store_true", help="runs that it starts are test runs")
    _add_wait(part, "wait for the ends of the runs that it starts; exit code 1 unless all complete")
    add_json(part)

    part = verbs.add_parser("list", help="events, newest first")
    add_place(part, project=False)
    part.add_argument("--name", metavar="PREFIX", help="only events whose names begin so")
    part.add_argument("--source", metavar="SOURCE", help="only those that came so, as api or step")
    part.add_argument("--project", metavar="SLUG", help="only those that workflows of this project sent")
    part.add_argument("--from", dest="since", metavar="TIME", help="received since, as 2026-10-31T08:00:00Z")
    part.add_argument("--to", dest="until", metavar="TIME", help="received before")
    add_paging(part)
    add_json(part)


def add_workflow_verbs(verbs: Any) -> None:
    """The verbs of `runr workflows` about what is stored."""
    part = verbs.add_parser("list", help="the workflows of a project, with what starts them")
    add_place(part)
    part.add_argument("--archived", action="store_true", help="also those that are declared no more")
    add_paging(part)
    add_json(part)

    part = verbs.add_parser(
        "declare", help="declare the project's whole list of workflows, without asking its function"
    )
    part.add_argument("file", metavar="FILE", help="a list, or an object with one, as runr.workflows.json; - for stdin")
    add_place(part)
    add_json(part)

    for verb, does in (
        ("pause", "triggers and the API start no runs of these workflows; runs in progress go on"),
        ("resume", "what was paused is started again"),
    ):
        part = verbs.add_parser(verb, help=does)
        part.add_argument("workflow", metavar="WORKFLOW", nargs="+")
        add_place(part)
        add_json(part)

    part = verbs.add_parser("logs", help="the newest runs and what became of them, a line each")
    part.add_argument("workflow", metavar="WORKFLOW", nargs="?", help="of this workflow (default: of all)")
    add_place(part)
    part.add_argument("-f", "--follow", action="store_true", help="go on, with a line for each that comes or changes")
    part.add_argument("--limit", metavar="N", type=int, default=20, help="old ones first, at most 200 (default: 20)")
    add_json(part, "print each run as the API shows it")


def add_paging(part: argparse.ArgumentParser) -> None:
    """How much of a list."""
    group = part.add_mutually_exclusive_group()
    group.add_argument("--limit", metavar="N", type=int, default=_LIMIT, help=f"rows at most (default: {_LIMIT})")
    group.add_argument("--all", action="store_true", help="all rows")


def verbs_of(part: argparse.ArgumentParser) -> Any:
    """Where the verbs of a command are added."""
    return part.add_subparsers(dest="verb", required=True, metavar="VERB")


def _add_filter(part: argparse.ArgumentParser) -> None:
    group = part.add_argument_group("filter", "all that is given must hold")
    for option, metavar, about in (
        ("workflow", "NAME", "runs of this workflow"),
        ("from", "TIME", "created since, as 2026-10-31T08:00:00Z"),
        ("to", "TIME", "created before"),
        ("q", "TEXT", "a run's id, an idempotency key or an event's id"),
    ):
        group.add_argument(f"--{option}", dest=f"filter_{option}", metavar=metavar, help=about)
    for option, about in (("status", "in this state; repeat for any of several"), ("tag", "with this tag; repeat")):
        group.add_argument(
            f"--{option}", dest=f"filter_{option}", metavar=option.upper(), action="append", default=[], help=about
        )


def _add_wait(part: argparse.ArgumentParser, about: str) -> None:
    part.add_argument("--wait", action="store_true", help=about)
    part.add_argument("--timeout", metavar="SECONDS", type=float, help="of --wait (default: none)")


def add_json(part: argparse.ArgumentParser, about: str = "print the API's answers") -> None:
    """`--json`: an output for programs."""
    part.add_argument("--json", action="store_true", help=about)
