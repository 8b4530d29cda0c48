"""What the ops of one answer do to a run, in order (protocol section 3)."""

from __future__ import annotations

from msgspec.structs import replace

from services.core.domain.attempt import Outcome, function_attempt, run_failed, step_failed
from services.core.domain.cause import Answered
from services.core.domain.effect import Effect, EndRun, Memoize, OpenWait, SendEvents, StartChild
from services.core.domain.op import (
    BadStep,
    Invoke,
    Op,
    OpError,
    RunCompleted,
    RunFailed,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from services.core.domain.op_fields import op_fields
from services.core.domain.run import STEP_KINDS, RunView, Status
from services.core.domain.safe_text import utf8_size


def apply_ops(state: RunView, cause: Answered, reached_ms: int) -> Outcome:
    """Apply the ops of one answer. Ops of steps that are memoized already are skipped; only skipped ones are a
    strike. `reached_ms`: see `transition.decide`.
    """
    fresh = [op for op in cause.ops if step_id_of(op) not in cause.repeated] if cause.repeated else cause.ops
    if not fresh:
        return strike(state, cause.ops)
    effects: list[Effect] = []
    steps = state.steps
    size = state.state_bytes
    for op in fresh:
        if isinstance(op, RunCompleted):
            return Outcome(Status.COMPLETED, (*effects, EndRun(output=op.output)), 0, 0, steps)
        if isinstance(op, RunFailed):
            base = state if not effects else _progressed(state)
            failed = run_failed(base, op, jitter=cause.jitter, steps=steps)
            return Outcome(failed.status, (*effects, *failed.effects), failed.function_failures, 0, failed.steps)
        if op.id in state.open_steps and isinstance(op, Sleep | WaitForEvent | Invoke):
            # Open since an earlier invocation that executed several steps at once (the worker stream).
            return Outcome(Status.SLEEPING if isinstance(op, Sleep) else Status.WAITING, tuple(effects), 0, 0, steps)
        if steps >= state.limits.max_steps:
            return over_limit(state, effects, steps, too_many_steps(state, op.id))
        if isinstance(op, StepFailed):
            made, final = step_failed(state, op, jitter=cause.jitter, seq=steps)
            effects.extend(made)
            if not final:
                failures = 0 if len(effects) > len(made) else state.function_failures
                return Outcome(Status.DELAYED, tuple(effects), failures, 0, steps)
            steps, size = steps + 1, size + error_size(op.error)
        else:
            opened, rests = apply_step(op, steps, reached_ms, state.limits.default_wait_ms)
            effects.extend(opened)
            steps += 1
            if rests is not None:
                return Outcome(rests, tuple(effects), 0, 0, steps)
            size += op_size(op)
        if size > state.limits.max_state_bytes:
            return over_limit(state, effects, steps, too_much_state(state, size))
        if isinstance(op, BadStep):
            break  # the ops after it assumed that it succeeded
    return Outcome(_go_on(state, cause), tuple(effects), 0, 0, steps)


def apply_step(op: Op, seq: int, reached_ms: int, default_wait_ms: int) -> tuple[list[Effect], Status | None]:
    """Effects of one step op, and the status in which the run rests after it (None: it goes on)."""
    match op:
        case StepCompleted():
            return [_memoize(op, "r", seq, output=op.output)], None
        case BadStep():
            return [_memoize(op, STEP_KINDS[op.kind], seq, error=op.error)], None
        case SendEvent():
            sent = Memoize(id=op.id, name=op.name, kind="n", seq=seq, output=None, input=op_fields(op))
            return [sent, SendEvents(id=op.id, events=op.events)], None
        case Sleep():
            # What has come since is not known here: such a wait is due when it is stored.
            if op.for_ms == 0 or (op.until_ms is not None and op.until_ms <= reached_ms):
                done = Memoize(id=op.id, name=op.name, kind="s", seq=seq, output="null", input=op_fields(op))
                return [done], None
            return [_wait("s", op, seq, delay_ms=op.for_ms, at_ms=op.until_ms)], Status.SLEEPING
        case WaitForEvent():
            wait = OpenWait(
                kind="e",
                id=op.id,
                name=op.name,
                seq=seq,
                delay_ms=op.timeout_ms if op.timeout_ms is not None else default_wait_ms,
                event=op.event,
                condition=op.condition,
                lookback_ms=op.lookback_ms,
                fields=op_fields(op),
            )
            return [wait], Status.WAITING
        case Invoke():
            child = StartChild(id=op.id, workflow=op.workflow, data=op.data)
            timeout_ms = op.timeout_ms if op.timeout_ms is not None else default_wait_ms
            return [_wait("c", op, seq, delay_ms=timeout_ms, at_ms=None), child], Status.WAITING
    raise AssertionError(f"not a step op: {op!r}")


def _memoize(
    op: StepCompleted | BadStep, kind: str, seq: int, *, output: str | None = None, error: OpError | None = None
) -> Memoize:
    return Memoize(
        id=op.id,
        name=op.name,
        kind=kind,
        seq=seq,
        output=output,
        error=error,
        input=op.input,
        duration_ms=op.duration_ms or 0,
    )


def _wait(kind: str, op: Sleep | Invoke, seq: int, *, delay_ms: int | None, at_ms: int | None) -> OpenWait:
    return OpenWait(kind=kind, id=op.id, name=op.name, seq=seq, delay_ms=delay_ms, at_ms=at_ms, fields=op_fields(op))


def _go_on(state: RunView, cause: Answered) -> Status:
    return Status.BLOCKED if cause.wanted and state.gated else Status.RUNNING


def _progressed(state: RunView) -> RunView:
    """The state after a step of the same answer was stored: earlier function failures do not count any more."""
    return replace(state, function_failures=0)


def strike(state: RunView, ops: tuple[Op, ...]) -> Outcome:
    """Every op is of a step that has a result: tolerated a few times in a row, because a loop must end."""
    repeats = state.repeats + 1
    if repeats < state.limits.max_repeats:
        return Outcome(Status.RUNNING, (), state.function_failures, repeats, state.steps)
    error = OpError(
        "NonDeterminismError",
        f"the function answered step {step_id_of(ops[0])!r}, which has a stored result, {repeats} times in a row: "
        "code between steps must take the same way on every invocation",
    )
    return replace(function_attempt(state, error, jitter=1.0, non_retriable=True), repeats=repeats)


def over_limit(state: RunView, effects: list[Effect], steps: int, error: OpError) -> Outcome:
    """The run fails at once: a limit holds whatever is tried."""
    failed = function_attempt(state, error, jitter=1.0, non_retriable=True, steps=steps)
    return Outcome(failed.status, (*effects, *failed.effects), failed.function_failures, 0, steps)


def too_many_steps(state: RunView, step_id: str) -> OpError:
    """The error of the step that would be one too many."""
    limit = state.limits.max_steps
    return OpError(
        "LimitExceeded",
        f"step {step_id!r} would be number {limit + 1} and a run has at most {limit} steps: "
        "let the workflow invoke itself with its remaining state (step.invoke); "
        "if it is no long loop, its step ids differ at every call",
    )


def too_much_state(state: RunView, size: int) -> OpError:
    """The error of the step whose result does not fit any more; `size` in bytes."""
    limit = state.limits.max_state_bytes
    return OpError("LimitExceeded", f"the memoized results of the run are {size} bytes and at most {limit} are allowed")


def step_id_of(op: Op) -> str | None:
    """The id of the op's step, None for the end of the run."""
    return None if isinstance(op, RunCompleted | RunFailed) else op.id


def op_size(op: Op) -> int:
    """Bytes that the op adds to the memoized state."""
    if isinstance(op, StepCompleted):
        return utf8_size(op.output)
    return error_size(op.error) if isinstance(op, BadStep) else 0


def error_size(error: OpError) -> int:
    """Bytes that a memoized error takes."""
    return utf8_size(error.name) + utf8_size(error.message) + utf8_size(error.stack or "")
