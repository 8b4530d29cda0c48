"""What the ops that a worker reports do to a run (protocol sections 3 and 7, and the worker stream).

As over HTTP, but an invocation may have several steps open at once: a sleep does not end the answer, and what was
reported after it did not assume that it is over.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from services.core.domain.answer import (
    apply_step,
    error_size,
    op_size,
    over_limit,
    step_id_of,
    strike,
    too_many_steps,
    too_much_state,
)
from services.core.domain.attempt import Outcome, run_failed, step_failed
from services.core.domain.cause import Reported
from services.core.domain.effect import Effect, EndRun
from services.core.domain.op import Invoke, Op, RunCompleted, RunFailed, Sleep, StepFailed, WaitForEvent
from services.core.domain.run import RunView, Status

_LETTERS: dict[type[Op], str] = {Sleep: "s", WaitForEvent: "e", Invoke: "c"}


def resting(open_steps: Mapping[str, str]) -> Status:
    """The status of a run of which nothing is executing: by what is open; RUNNING when nothing is."""
    letters = set(open_steps.values())
    if "s" in letters:
        return Status.SLEEPING
    if letters & {"e", "c"}:
        return Status.WAITING
    return Status.DELAYED if letters else Status.RUNNING


def apply_reported(state: RunView, cause: Reported, reached_ms: int) -> Outcome:
    """Apply the ops in order. `reached_ms`: see `transition.decide`."""
    fresh = [op for op in cause.ops if step_id_of(op) not in cause.repeated]
    if not fresh:
        return strike(state, cause.ops)
    applied = _Applied(state)
    for op in fresh:
        ended = applied.take(op, cause.jitter, reached_ms)
        if ended is not None:
            return ended
    status = Status.RUNNING if cause.executing else resting(applied.open_steps)
    return Outcome(status, tuple(applied.effects), applied.function_failures, 0, applied.steps)


class _Applied:
    """What the ops so far have come to."""

    def __init__(self, state: RunView) -> None:
        self._state = state
        self._size = state.state_bytes
        self.effects: list[Effect] = []
        self.steps = state.steps
        self.open_steps = dict(state.open_steps)
        self.function_failures = state.function_failures

    def take(self, op: Op, jitter: float, reached_ms: int) -> Outcome | None:
        """Apply one op; the outcome if the run ends with it, or its invocation."""
        if isinstance(op, RunCompleted):
            return Outcome(Status.COMPLETED, (*self.effects, EndRun(output=op.output)), 0, 0, self.steps)
        if isinstance(op, RunFailed):
            return self._run_failed(op, jitter)
        if type(op) in _LETTERS and op.id in self.open_steps:
            return None  # open already: a worker that was not told so, or forgot
        if self.steps >= self._state.limits.max_steps:
            return over_limit(self._state, self.effects, self.steps, too_many_steps(self._state, op.id))
        if isinstance(op, StepFailed):
            self._step_failed(op, jitter)
        else:
            made, rests = apply_step(op, self.steps, reached_ms, self._state.limits.default_wait_ms)
            self.effects += made
            self._counted(op_size(op))
            if rests is not None:
                self.open_steps[op.id] = _LETTERS[type(op)]
        if self._size > self._state.limits.max_state_bytes:
            return over_limit(self._state, self.effects, self.steps, too_much_state(self._state, self._size))
        return None

    def _step_failed(self, op: StepFailed, jitter: float) -> None:
        made, final = step_failed(self._state, op, jitter=jitter, seq=self.steps)
        self.effects += made
        if final:
            self._counted(error_size(op.error))
        else:
            self.open_steps[op.id] = "b"

    def _counted(self, size: int) -> None:
        self.steps += 1
        self._size += size
        self.function_failures = 0

    def _run_failed(self, op: RunFailed, jitter: float) -> Outcome:
        base = replace(self._state, function_failures=self.function_failures)
        failed = run_failed(base, op, jitter=jitter, steps=self.steps)
        return replace(failed, effects=(*self.effects, *failed.effects), repeats=0)
