"""Whether code goes the way of a stored run: what a dry answer says, held against the history."""

from __future__ import annotations

import json
from dataclasses import dataclass

from services.cli.check.stored_run import StoredRun
from services.cli.dry_run import Dry


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference. `step` is where, None for the workflow as a whole; `kind` is a word for programs:
    `kind`, `skipped`, `open`, `fails`, `not_served`, or `unknown` where the function could not be asked.
    """

    kind: str
    message: str
    step: str | None = None


def diverges(run: StoredRun, dry: Dry) -> Divergence | None:
    """The first difference between a run and the code that was asked about it; None if it goes on as it should."""
    return _other_kind(run, dry) or _failure(run, dry) or _skipped(run, dry) or _left_open(run, dry)


def _other_kind(run: StoredRun, dry: Dry) -> Divergence | None:
    """A call of another kind than the step has: its result would be taken for something else."""
    stored = {step.id: step.kind for step in run.steps}
    for step_id, kind in (*dry.called, *([dry.would_run] if dry.would_run else ())):
        if stored.get(step_id, kind) != kind:
            message = f"it is {_a(stored[step_id])} in the history, and {_a(kind)} in the code"
            return Divergence("kind", message, step_id)
    return None


def _failure(run: StoredRun, dry: Dry) -> Divergence | None:
    """The code raises. That a step has failed for good and is not caught is no fault of the code."""
    if dry.ends != "run_failed" or dry.error in {_described(step.error) for step in run.steps if step.error}:
        return None
    last = dry.called[-1][0] if dry.called else None
    return Divergence("fails", f"the code fails{_after(dry)} with {dry.error}", last)


def _skipped(run: StoredRun, dry: Dry) -> Divergence | None:
    """A memoized step is not called before the code comes to a new one, or to its end."""
    called = {step_id for step_id, _ in dry.called}
    skipped = next((step.id for step in run.steps if step.is_memoized and step.id not in called), None)
    if skipped is None or dry.ends == "run_failed":
        return None
    return Divergence("skipped", f"it has a result, and the code {_next(dry)} without calling it", skipped)


def _left_open(run: StoredRun, dry: Dry) -> Divergence | None:
    """The run sleeps, waits, or tries again in a step, and the code would not come to that."""
    opened = [step.id for step in run.steps if not step.is_memoized]
    if not opened or dry.ends == "run_failed" or (dry.would_run is not None and dry.would_run[0] in opened):
        return None
    return Divergence("open", f"the run is in it, and the code {_next(dry)} instead", opened[0])


def _next(dry: Dry) -> str:
    if dry.would_run is None:
        return "ends"
    return f"comes to {dry.would_run[0]!r}, {_a(dry.would_run[1])},"


def _after(dry: Dry) -> str:
    return f" after {dry.called[-1][0]!r}" if dry.called else ""


def _a(kind: str) -> str:
    return f"{'an' if kind == 'invoke' else 'a'} {kind}"


def _described(error: str) -> str:
    members = json.loads(error)
    return f"{members.get('name') or 'Error'}: {members.get('message') or ''}"
