"""A running run, ops, answers and every cause for the state machine, and what it decided."""

from __future__ import annotations

from services.core.domain import cause as causes
from services.core.domain.cause import Answered, Cause, FunctionFailed
from services.core.domain.op import FunctionFault, Op, OpError, StepCompleted, StepFailed, WaitForEvent
from services.core.domain.run import RunView, Status
from services.core.domain.transition import Decision

NOW = 1_760_000_000_000
BOOM = OpError("Boom", "no")


def running(**fields: object) -> RunView:
    return RunView(**{"status": Status.RUNNING, "max_attempts": 4, **fields})  # type: ignore[arg-type]


def done(step_id: str, output: str = "1") -> StepCompleted:
    return StepCompleted(id=step_id, name=step_id, output=output)


def failed(step_id: str, **fields: object) -> StepFailed:
    return StepFailed(id=step_id, name=step_id, error=BOOM, **fields)  # type: ignore[arg-type]


def waiting(step_id: str, **fields: object) -> WaitForEvent:
    return WaitForEvent(id=step_id, name=step_id, event="paid", **fields)  # type: ignore[arg-type]


def answered(*ops: Op, repeated: tuple[str, ...] = (), wanted: bool = False) -> Answered:
    return Answered(ops, frozenset(repeated), wanted=wanted)


def kinds(decision: Decision) -> list[str]:
    return [type(effect).__name__ for effect in decision.effects]


EVERY_CAUSE: list[Cause] = [
    causes.LeaseTaken(),
    answered(done("a")),
    causes.Reported((done("a"),)),
    causes.Unwound(),
    FunctionFailed(FunctionFault("FunctionTimeout", "no answer")),
    causes.LeaseExpired(),
    causes.Due(),
    causes.Delivered(),
    causes.SlotGranted(),
    causes.LetGo(),
    causes.Resumed(),
    causes.NotBegun(),
    causes.Cancel(),
    causes.DeadlinePassed(),
    causes.Retried(),
]

OF_INVOCATIONS = Answered | FunctionFailed | causes.Reported | causes.Unwound
