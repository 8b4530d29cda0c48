"""The state machine of a run: one table, one pure function. Nothing else decides a status (engine section 5).

`TABLE` says where each cause may lead from each status. `decide` picks the way and names the effects that are written
in the same transaction. The set-based statements of the store (`store/migrations`) act on many runs at once and follow
the same table; `tests/integration/test_transition_table.py` holds them against it.
"""

from __future__ import annotations

import msgspec

from services.core.domain.answer import apply_ops
from services.core.domain.attempt import Outcome, function_attempt
from services.core.domain.cause import (
    Answered,
    Cancel,
    Cause,
    DeadlinePassed,
    Delivered,
    Due,
    FunctionFailed,
    LeaseExpired,
    LeaseTaken,
    LetGo,
    NotBegun,
    Reported,
    Resumed,
    Retried,
    SlotGranted,
    Unwound,
)
from services.core.domain.effect import Effect, EndRun
from services.core.domain.op import OpError
from services.core.domain.reported_ops import apply_reported, resting
from services.core.domain.run import ACTIVE, TERMINAL, RunView, Status

_READY = frozenset({Status.QUEUED, Status.BLOCKED})
_RESTING = frozenset({Status.SLEEPING, Status.WAITING, Status.DELAYED, Status.PARKED})

TABLE: dict[type[Cause], dict[Status, frozenset[Status]]] = {
    LeaseTaken: {Status.QUEUED: frozenset({Status.RUNNING})},
    SlotGranted: {Status.BLOCKED: frozenset({Status.QUEUED})},
    Answered: {
        Status.RUNNING: frozenset(
            {
                Status.RUNNING,  # a result was stored: on with the next step under the same lease
                Status.QUEUED,  # the same, but another run waits for the slot and this run keeps none
                Status.BLOCKED,
                Status.DELAYED,
                Status.SLEEPING,
                Status.WAITING,
                Status.COMPLETED,
                Status.FAILED,
            }
        )
    },
    Reported: {
        Status.RUNNING: frozenset(
            {
                Status.RUNNING,  # the invocation goes on, or the next one begins under the same lease
                Status.DELAYED,
                Status.SLEEPING,
                Status.WAITING,
                Status.COMPLETED,
                Status.FAILED,
            }
        )
    },
    Unwound: {Status.RUNNING: frozenset({Status.RUNNING, Status.DELAYED, Status.SLEEPING, Status.WAITING})},
    FunctionFailed: {Status.RUNNING: frozenset({Status.DELAYED, Status.FAILED})},
    LeaseExpired: {Status.RUNNING: frozenset({Status.QUEUED, Status.BLOCKED, Status.PARKED, Status.FAILED})},
    LetGo: {Status.RUNNING: _READY | {Status.PARKED}},
    Resumed: {status: frozenset({Status.RUNNING}) for status in (Status.RUNNING, Status.PARKED)},
    NotBegun: {Status.PARKED: frozenset({Status.QUEUED})},  # with the slot that it has kept
    Due: {status: _READY for status in _RESTING - {Status.PARKED}}
    | {Status.PARKED: frozenset({Status.QUEUED, Status.FAILED})}
    | {status: frozenset({status}) for status in (Status.RUNNING, *_READY)},
    Delivered: {status: _READY for status in _RESTING - {Status.PARKED}}
    | {status: frozenset({status}) for status in (Status.RUNNING, Status.PARKED, *_READY)},
    Cancel: {status: frozenset({Status.CANCELLED}) for status in ACTIVE},
    DeadlinePassed: {status: frozenset({Status.TIMED_OUT}) for status in ACTIVE},
    Retried: {status: _READY for status in TERMINAL - {Status.COMPLETED}},
}


class IllegalTransition(Exception):
    """A cause that the run's status does not allow. A guarded write never gets here; seeing it means a bug."""


class Decision(msgspec.Struct, frozen=True):
    """The new status with what is written with it. `status` RUNNING means: go on at once under the same lease."""

    status: Status
    effects: tuple[Effect, ...] = ()
    function_failures: int = 0
    repeats: int = 0
    steps: int = 0


def decide(state: RunView, cause: Cause, reached_ms: int) -> Decision:
    """What `cause` does to a run in `state`.

    `reached_ms` (unix) is an instant that the database's clock has told, so that has come (rulings C21); no other clock
    is asked. Delays in effects are relative to the commit, absolute times as given. Raises IllegalTransition when the
    table has no way from this status.
    """
    ways = TABLE[type(cause)].get(state.status)
    if ways is None:
        raise IllegalTransition(f"{type(cause).__name__} cannot happen to a run that is {state.status.name}")
    decision = _decide(state, cause, reached_ms)
    if decision.status not in ways:
        raise IllegalTransition(
            f"{type(cause).__name__} may not lead from {state.status.name} to {decision.status.name}"
        )
    return decision


def _decide(state: RunView, cause: Cause, reached_ms: int) -> Decision:
    match cause:
        case Answered() | Reported() | Unwound() | FunctionFailed():
            return _invoked(state, cause, reached_ms)
        case LeaseExpired() | LetGo() if state.streamed:
            return _plain(state, Status.PARKED)
        case LeaseExpired():
            return _lost(state)
        case Due() if state.status is Status.PARKED:
            return _lost(state)  # its worker has not come back
        case LeaseTaken() | Resumed():
            return _plain(state, Status.RUNNING)
        case SlotGranted() | NotBegun():
            return _plain(state, Status.QUEUED)
        case LetGo():
            return _plain(state, _ready(state))
        case Due() | Delivered():
            wakes = state.status in _RESTING and (isinstance(cause, Due) or state.status is not Status.PARKED)
            return _plain(state, _ready(state) if wakes else state.status)
        case Cancel():
            return _plain(state, Status.CANCELLED, (EndRun(),))
        case DeadlinePassed():
            error = OpError("RunTimeout", "the run did not end within its timeout")
            return _plain(state, Status.TIMED_OUT, (EndRun(error=error),))
        case Retried():
            return Decision(status=_ready(state), steps=state.steps)


def _invoked(state: RunView, cause: Answered | Reported | Unwound | FunctionFailed, reached_ms: int) -> Decision:
    match cause:
        case Answered():
            return _from_outcome(apply_ops(state, cause, reached_ms))
        case Reported():
            return _from_outcome(apply_reported(state, cause, reached_ms))
        case Unwound():
            return _plain(state, resting(state.open_steps))
        case FunctionFailed(fault=fault, jitter=jitter):
            return _from_outcome(function_attempt(state, OpError(fault.name, fault.message), jitter=jitter))


def _lost(state: RunView) -> Decision:
    """WorkerLost is a failed function attempt, but tried again at once: the backoff is for faults of the function."""
    lost = OpError("WorkerLost", "the engine process that ran this step disappeared")
    outcome = function_attempt(state, lost, jitter=1.0)
    if outcome.status is Status.DELAYED:
        return _plain(state, Status.QUEUED, outcome.effects[:1], function_failures=outcome.function_failures)
    return _from_outcome(outcome)


def _ready(state: RunView) -> Status:
    return Status.BLOCKED if state.gated else Status.QUEUED


def _from_outcome(outcome: Outcome) -> Decision:
    return Decision(outcome.status, outcome.effects, outcome.function_failures, outcome.repeats, outcome.steps)


def _plain(
    state: RunView, status: Status, effects: tuple[Effect, ...] = (), *, function_failures: int | None = None
) -> Decision:
    failures = state.function_failures if function_failures is None else function_failures
    return Decision(status, effects, failures, state.repeats, state.steps)
