"""Notices steps that are executed, stored, and not asked for again: renamed ones, and ids that differ at every call.

Code that has not changed asks for all that is stored before it comes to a new step, where it runs in one line. A
stored step that it did not ask for by then was renamed, removed, or is asked for later than a step that was put before
it. Which of these it is cannot be seen before the run ends, and a step that was renamed has then had its effect twice:
so it is told in the log, once a run.

Where ids differ at every call, a body runs once more at every call, under a new id, and the run never ends. Whether it
is so cannot be seen in one request: a deployment that puts a new step first looks the same. To fail a run, a process
compares with what it has answered itself, with the same code, and only a long row of such steps fails the run: code
that once took another branch, because it read the clock or a flag, is told so in the log and goes on.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from threading import Lock

from .errors import NonDeterminismError

MOST_IN_A_ROW = 100
"""Steps in a row that may be lost before the run fails."""

_MOST_RUNS = 4096
_MOST_NAMED = 5

_Key = tuple[str, str]
"""Workflow and run."""

_log = logging.getLogger("runr_workflows")


@dataclass(slots=True)
class _Answered:
    """The step that was answered last for a run, and how many in a row were lost."""

    step_id: str
    in_a_row: int = 0


class LostSteps:
    """What this process has answered last, for the runs that it was called for. Used by all threads."""

    def __init__(self, most_runs: int = _MOST_RUNS) -> None:
        self._most_runs = most_runs
        self._runs: OrderedDict[_Key, _Answered] = OrderedDict()
        self._told: OrderedDict[_Key, None] = OrderedDict()
        self._lock = Lock()

    def watch(self, workflow: str, run_id: str) -> StepWatch:
        """For one invocation of a run."""
        return StepWatch(self, (workflow, run_id))

    def known(self, run: _Key) -> _Answered | None:
        """What was answered last for a run."""
        return self._runs.get(run)

    def answered(self, run: _Key, step_id: str) -> None:
        """A step of the run is answered."""
        with self._lock:
            before = self._runs.get(run)
            if before is None:
                while len(self._runs) >= self._most_runs:
                    self._runs.popitem(last=False)
                self._runs[run] = _Answered(step_id)
            else:
                before.step_id = step_id
                self._runs.move_to_end(run)

    def is_to_be_told(self, run: _Key) -> bool:
        """Whether nothing has been told of the run yet; from now on, it has."""
        with self._lock:
            if run in self._told:
                return False
            while len(self._told) >= self._most_runs:
                self._told.popitem(last=False)
            self._told[run] = None
            return True

    def forget(self, run: _Key) -> None:
        """The run is over, or has been failed."""
        with self._lock:
            self._runs.pop(run, None)


class StepWatch:
    """Watches one invocation."""

    def __init__(self, lost_steps: LostSteps, run: _Key) -> None:
        self.concurrent = False
        """Whether steps were called by tasks beside the workflow function: which of them comes first may vary."""
        self._lost_steps = lost_steps
        self._run = run
        self._missing: list[str] | None = None
        """Stored steps that were not asked for; None before they are looked for."""

    def executes(self, step_id: str, asked: Container[str]) -> NonDeterminismError | None:
        """A step without a result is about to be executed; `asked` are the steps that were called so far, itself among
        them. What the run is to fail with, if it must.
        """
        last = self._lost_steps.known(self._run)
        if last is None or last.in_a_row + 1 < MOST_IN_A_ROW or not self._is_lost(last, asked):
            return None
        self._lost_steps.forget(self._run)
        return NonDeterminismError(last.step_id, step_id, MOST_IN_A_ROW)

    def reports(self, step_id: str, stored: Iterable[str], asked: Container[str]) -> None:
        """A new step is about to be reported, and fewer steps were recalled than are `stored`."""
        if self.concurrent:
            return
        missing = [each for each in (stored if self._missing is None else self._missing) if each not in asked]
        self._missing = missing
        if missing and self._lost_steps.is_to_be_told(self._run):
            self._tell_missing(missing, step_id)

    def answered(self, step_id: str, asked: Container[str]) -> None:
        """The invocation ends with this step. Judged only now: a body that the workflow gave up on may have been
        executed before the code came past all that it asks for.
        """
        last = self._lost_steps.known(self._run)
        if last is not None:
            if last.step_id in asked:
                last.in_a_row = 0
            elif self._is_lost(last, asked):
                last.in_a_row += 1
                self._tell(last, step_id)
        self._lost_steps.answered(self._run, step_id)

    def ended(self) -> None:
        """The run is over."""
        self._lost_steps.forget(self._run)

    def _is_lost(self, last: _Answered, asked: Container[str]) -> bool:
        return last.step_id not in asked and not self.concurrent

    def _tell_missing(self, missing: list[str], step_id: str) -> None:
        more = len(missing) - _MOST_NAMED
        _log.warning(
            "workflow %s, run %s: step %r was new and was executed, and the code before it did not ask for %s%s, of"
            " which a result is stored: a step that was renamed has its effect twice. Step ids, and what decides which"
            " step comes next, must stay the same while runs are active (no harm is done where a step was put before"
            " stored ones, or one was removed on purpose)",
            *self._run,
            step_id,
            ", ".join(map(repr, missing[:_MOST_NAMED])),
            f" and {more} more" if more > 0 else "",
        )

    def _tell(self, last: _Answered, step_id: str) -> None:
        if not self._lost_steps.is_to_be_told(self._run):
            return
        _log.warning(
            "workflow %s, run %s: step %r was executed by the call before and this one did not ask for it, it executed"
            " %r: step ids, and what decides which step comes next, must be the same at every call"
            " (%d such steps in a row fail the run)",
            *self._run,
            last.step_id,
            step_id,
            MOST_IN_A_ROW,
        )
