"""Whether what a test has set up came to anything: a fault that hits nothing tests nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .script import Script, UnusedError
from .stored import TestRun
from .world import World

_MOST_TOLD = 50


def check_own_faults(over: Sequence[tuple[TestRun[Any], Script]]) -> None:
    """Raises UnusedError for the faults of single runs, which have ended."""
    for run, script in over:
        _check_faults(script, list(_family(run)))


def check_all(world: World, unsent: Sequence[str]) -> None:
    """Raises UnusedError for what holds for every run, if none is active. `unsent` are steps to send events in."""
    if all(run.ended for run in world.runs):
        _check_faults(world.script, world.runs)
        if unsent:
            raise UnusedError(
                f"no run has waited in step {unsent[0]!r}, and the event for it (when_waiting) was not sent;"
                f" {_told(world.runs)}"
            )


def _check_faults(script: Script, runs: Sequence[TestRun[Any]]) -> None:
    if script.unused:
        raise UnusedError(f"the fault of step {script.unused[0]} has hit nothing; {_told(runs)}")


def _family(run: TestRun[Any]) -> Iterator[TestRun[Any]]:
    yield run
    for child in run.children:
        if child.parent is run:
            yield from _family(child)


def _told(runs: Iterable[TestRun[Any]]) -> str:
    """The steps that there were, by workflow."""
    steps: dict[str, dict[str, str]] = {}
    for run in runs:
        steps.setdefault(run.workflow, {}).update({step.id: step.kind for step in run.steps.values()})
    return "the steps were " + "; ".join(f"{name}: {_listed(found)}" for name, found in steps.items())


def _listed(kinds: dict[str, str]) -> str:
    told = [step if kind == "run" else f"{step} ({kind})" for step, kind in kinds.items()]
    more = ["…"] if len(told) > _MOST_TOLD else []
    return ", ".join(told[:_MOST_TOLD] + more) or "none"
