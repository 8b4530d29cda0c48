"""Errors that workflow code raises and catches.

Exception
├── NonRetriableError       raise it: fails the step or run at once
├── RetryAfterError         raise it: sets the delay before the next attempt
├── StepError               catch it: a step that failed for good
│   └── InvokeError         … whose child run failed, was cancelled or timed out
├── NestedStepError         a step call, or the await of one, inside the body of another step
├── SharedStepIdError       one step id in several threads of a sync workflow
├── StepNotAwaitedError     an async workflow never awaited a step call, or took the call for its result
├── NonDeterminismError     step ids that differ at every call: results are stored and never asked for again
├── MiddlewareError         middleware raised an error
├── UnknownStepStatusError  the engine sent a step status that this SDK does not know
├── ConnectError            the engine will not have this process as a worker
├── TypeError
│   └── UnknownOptionError  a function of the SDK was given an option, or an event a member, that it does not have
└── ValueError
    ├── DefinitionError     the options of `@wf.workflow` break a rule
    ├── StepArgumentError   the arguments of a step call break a rule
    ├── SettingsError       a setting of `wf.serve()`, `wf.connect()` or a client is missing or wrong
    └── SerializationError  a value that JSON cannot hold
"""

from __future__ import annotations

from datetime import datetime, timedelta

from .shown import shown

Duration = str | int | float | timedelta
"""`"500ms"`, `"30s"`, `"15m"`, `"1h30m"`, `"P1D"`, a number of seconds, or a timedelta (protocol section 5)."""


class NonRetriableError(Exception):
    """Raise it inside or outside a step to fail at once, without the attempts that are left."""


class RetryAfterError(Exception):
    """Raise it inside or outside a step to say when the next attempt is made.

    `retry_after`: a duration, an ISO-8601 time, or a datetime (UTC when it has no timezone). The number of attempts
    stays the same.
    """

    def __init__(self, message: str, retry_after: Duration | datetime) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StepError(Exception):
    """A step failed for good: its attempts are used up, or its error was not retriable.

    Raised by the step call on every invocation, so it can be caught to compensate. Uncaught, it fails the run with the
    original error. `name` is the class name of the original error, `stack` its traceback if there is one.
    """

    def __init__(self, name: str, message: str, *, step_id: str, stack: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.step_id = step_id
        self.stack = stack

    def __str__(self) -> str:
        return f"step {self.step_id!r} failed: {self.name}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return _step_error, (type(self), self.name, self.message, self.step_id, self.stack)


class InvokeError(StepError):
    """`step.invoke` failed. `name` is `InvokeError`, `InvokeTimeout`, or what refused the call."""


class NestedStepError(Exception):
    """A step was called or awaited inside the body of another step; steps cannot be nested (protocol section 7)."""

    def __init__(self, inner: str, outer: str, *, how: str = "called") -> None:
        super().__init__(f"step {inner!r} was {how} inside step {outer!r}: steps cannot be nested")


class SharedStepIdError(Exception):
    """Threads of a sync workflow call steps of the same id: which of them gets which result would vary."""

    def __init__(self, step_id: str) -> None:
        super().__init__(
            f"step {step_id!r} was called from several threads of the workflow at once: which of them comes first is"
            " not the same at every call, so give the steps of each thread ids of their own, and start each thread"
            " with a copy of the workflow's context"
        )


class StepNotAwaitedError(Exception):
    """An async workflow never awaited a step call: it returned, and the step would silently not run, or it took the
    call for the result. `used` is what was done with it.
    """

    def __init__(self, step_ids: list[str], used: str | None = None) -> None:
        names = ", ".join(repr(step_id) for step_id in step_ids)
        if used is None:
            super().__init__(f"the workflow returned without awaiting its step call {names}")
        else:
            super().__init__(f"step {names} was not awaited: {used}")


class NonDeterminismError(Exception):
    """The workflow executes a new step at every call and never asks for the one before.

    Step ids, and what decides which step comes next, must be the same at every call: make random numbers, times and
    what is read elsewhere the result of a step.
    """

    def __init__(self, lost: str, step_id: str, in_a_row: int) -> None:
        super().__init__(
            f"{in_a_row} steps in a row were executed and not asked for by the next call, the last of them {lost!r}"
            f" before {step_id!r}: step ids must be the same at every call, so random numbers, times and what is read"
            " elsewhere must be the result of a step"
        )


class MiddlewareError(Exception):
    """A hook of the middleware raised an error. It fails the attempt, of the step or of the function, as any other."""

    def __init__(self, hook: str, error: BaseException) -> None:
        super().__init__(f"middleware {hook} raised {type(error).__name__}: {error}")
        self.hook = hook


class UnknownStepStatusError(Exception):
    """A memoized step has a status that is neither completed nor failed: it is neither returned nor run again."""

    def __init__(self, step_id: str, status: object) -> None:
        super().__init__(f"step {step_id!r} has the unknown status {status!r}; a newer SDK may know it")


class ConnectError(Exception):
    """The engine will not have this process as a worker, and trying again is of no use.

    `reason` is machine-readable: that of the engine (`UNAUTHENTICATED`, `INVALID_DEFINITIONS`, `SUPERSEDED`, …),
    `IMPOSTOR` for an engine that does not know the signing key, `REFUSED` for a server that takes no workers.
    Out of `wf.connect()` it ends the program with its message, on one line of stderr, unless it is caught.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class DefinitionError(ValueError):
    """The options of a workflow break a rule. `faults` lists all of them, each as `path: what is allowed`."""

    def __init__(self, workflow: object, faults: list[str]) -> None:
        super().__init__(f"workflow {shown(workflow, 100)}: " + "; ".join(faults))
        self.faults = faults


class StepArgumentError(ValueError):
    """The arguments of a step call break a rule. Raised before anything runs; not retried."""


class UnknownOptionError(TypeError):
    """A function of the SDK was given an option, or an event a member, that it does not have.

    The message names it, what is allowed, and what may have been meant. Raised before anything is sent or runs; step
    calls raise StepArgumentError in its place, and `@wf.workflow` DefinitionError. Not retried.
    """


class SettingsError(ValueError):
    """A setting is missing or wrong: an argument, or the variable in its place. The message names it.

    Out of `wf.connect()` and `wf.serve()` it ends the program with that message, on one line of stderr, unless it is
    caught.
    """


class SerializationError(ValueError):
    """A value cannot be held by JSON. The message names the place and the type; not retried."""


def _step_error(cls: type[StepError], name: str, message: str, step_id: str, stack: str | None) -> StepError:
    return cls(name, message, step_id=step_id, stack=stack)
