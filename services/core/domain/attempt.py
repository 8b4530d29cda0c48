"""Failed attempts: of a step, of the function; when they are tried again and when they are final (engine section 5)."""

from __future__ import annotations

import msgspec

from services.core.domain.effect import Effect, EndRun, Memoize, OpenWait, RecordAttempt
from services.core.domain.op import OpError, RunFailed, StepFailed
from services.core.domain.retry import backoff_ms
from services.core.domain.run import RunView, Status


class Outcome(msgspec.Struct, frozen=True):
    """What a failed attempt or an answer comes to; `transition.Decision` in the making."""

    status: Status
    effects: tuple[Effect, ...]
    function_failures: int
    repeats: int
    steps: int


def function_attempt(
    state: RunView,
    error: OpError,
    *,
    jitter: float,
    non_retriable: bool = False,
    delay_ms: int | None = None,
    at_ms: int | None = None,
    note: str | None = None,
    steps: int | None = None,
) -> Outcome:
    """A failed function attempt: tried again after a backoff (or at the time asked for), or the run has failed."""
    failures = state.function_failures + 1
    places = state.steps if steps is None else steps
    record = RecordAttempt(step_id=None, number=failures, error=error, note=note)
    if non_retriable or failures >= state.max_attempts:
        return Outcome(Status.FAILED, (record, EndRun(error=error)), failures, state.repeats, places)
    if delay_ms is None and at_ms is None:
        delay_ms = backoff_ms(failures, jitter)
    pause = OpenWait(kind="d", id="", name="", seq=places, delay_ms=delay_ms, at_ms=at_ms)
    return Outcome(Status.DELAYED, (record, pause), failures, state.repeats, places)


def run_failed(state: RunView, op: RunFailed, *, jitter: float, steps: int) -> Outcome:
    """The workflow raised outside a step."""
    return function_attempt(
        state,
        op.error,
        jitter=jitter,
        non_retriable=op.non_retriable,
        delay_ms=op.retry_after_ms,
        at_ms=op.retry_at_ms,
        note=op.warning,
        steps=steps,
    )


def step_failed(state: RunView, op: StepFailed, *, jitter: float, seq: int) -> tuple[tuple[Effect, ...], bool]:
    """A failed attempt of a step: its effects, and whether it is final (memoized as failed)."""
    number = state.step_failures.get(op.id, 0) + 1
    record = RecordAttempt(
        step_id=op.id, number=number, error=op.error, note=op.warning, duration_ms=op.duration_ms or 0
    )
    allowed = op.max_attempts if op.max_attempts is not None else state.max_attempts
    if op.non_retriable or number >= allowed:
        failed = Memoize(
            id=op.id,
            name=op.name,
            kind="r",
            seq=seq,
            error=op.error,
            input=op.input,
            duration_ms=op.duration_ms or 0,
            attempts=number,
        )
        return (record, failed), True
    delay_ms, at_ms = op.retry_after_ms, op.retry_at_ms
    if delay_ms is None and at_ms is None:
        delay_ms = backoff_ms(number, jitter)
    pause = OpenWait(kind="b", id=op.id, name=op.name, seq=seq, delay_ms=delay_ms, at_ms=at_ms, fields=op.input)
    return (record, pause), False
