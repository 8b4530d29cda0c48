"""Operations: what one invocation of a function answers (protocol section 3).

Values only. `core/domain/envelope.py` parses them out of an answer; `core/domain/transition.py` decides what they do.
All JSON payloads (`output`, `input`, `data`) are the JSON text as the function sent it, never decoded values.
"""

from __future__ import annotations

import msgspec


class OpError(msgspec.Struct, frozen=True):
    """The error of a step or run, already cut to its limits (name 200 B, message 8 KiB, stack 32 KiB)."""

    name: str
    message: str
    stack: str | None = None


class StepOp(msgspec.Struct, frozen=True, kw_only=True):
    """What every step op carries. `id` has the counter suffix, `name` has not.

    `input` is for the timeline only: the arguments of a `step.run`, None where they are over 32 KiB or were not given.
    """

    id: str
    name: str
    duration_ms: int | None = None
    input: str | None = None
    max_attempts: int | None = None


class StepCompleted(StepOp, frozen=True, kw_only=True):
    """A `step.run` whose function returned."""

    output: str = "null"


class StepFailed(StepOp, frozen=True, kw_only=True):
    """A `step.run` whose function raised. At most one of `retry_after_ms` and `retry_at_ms` (unix) is set."""

    error: OpError
    non_retriable: bool = False
    retry_after_ms: int | None = None
    retry_at_ms: int | None = None
    warning: str | None = None


class Sleep(StepOp, frozen=True, kw_only=True):
    """Sleep for `for_ms`, or until `until_ms` (unix milliseconds); exactly one is set. `asked_ms`: when the function
    asked, by its own clock (unix milliseconds); None where it does not say.
    """

    for_ms: int | None = None
    until_ms: int | None = None
    asked_ms: float | None = None


class WaitForEvent(StepOp, frozen=True, kw_only=True):
    """Wait for an event. `condition` is `match` and `if` joined into one expression, None = the name alone.

    `lookback_ms`: None = none, -1 = since the run was created.
    """

    event: str
    condition: str | None = None
    timeout_ms: int | None = None
    lookback_ms: int | None = None


class Invoke(StepOp, frozen=True, kw_only=True):
    """Start a child run and wait for its end."""

    workflow: str
    data: str = "{}"
    timeout_ms: int | None = None


class EventToSend(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a `send_event` op. `id` is None where the function left it out."""

    name: str
    data: str = "{}"
    id: str | None = None
    ts: int | None = None


class SendEvent(StepOp, frozen=True, kw_only=True):
    """Send 1–100 events, durably with the step."""

    events: tuple[EventToSend, ...]


class RunCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """The workflow returned."""

    output: str = "null"


class RunFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The workflow raised outside a step. At most one of `retry_after_ms` and `retry_at_ms` (unix) is set."""

    error: OpError
    non_retriable: bool = False
    retry_after_ms: int | None = None
    retry_at_ms: int | None = None
    warning: str | None = None


class BadStep(StepOp, frozen=True, kw_only=True):
    """A step op whose own fields break a rule: the author's fault, memoized as failed (protocol section 3).

    `kind` is what the step was meant to be: run, sleep, wait_for_event, invoke or send_event.
    """

    error: OpError
    kind: str = "run"


Op = StepCompleted | StepFailed | Sleep | WaitForEvent | Invoke | SendEvent | RunCompleted | RunFailed | BadStep
"""The closed union of operations."""


class FunctionFault(Exception):
    """Anything that is not a valid answer: a failed function attempt with a named reason (protocol section 2).

    `name` is one of FunctionHttpError, FunctionTimeout, FunctionUnreachable, SignatureRejected, ProtocolError,
    AnswerTooLarge, EndpointRefused, WorkerLost, StorageError.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"
