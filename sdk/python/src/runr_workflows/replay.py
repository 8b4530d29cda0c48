"""The replay core: one invocation of a workflow as a sans-I/O state machine (protocol section 7).

A step call is a generator: it returns the memoized result, or yields the body of `step.run` for its driver to execute,
records the op, and ends with StepInterrupt. `step.py` drives it in sync code, `async_step.py` in async code; all rules
are here.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from .calls import StepCall
from .errors import (
    InvokeError,
    NestedStepError,
    SerializationError,
    StepError,
    UnknownStepStatusError,
)
from .failures import Failure, failure_of
from .interrupt import StepInterrupt
from .step_ids import StepIds
from .values import encode

Body = partial[Any]
"""The function of a `step.run` with its arguments."""
StepFlow = Generator[Body, Any, Any]

_BODY_FAULTS = (Exception, SystemExit, CancelledError)
"""What a body may raise to fail its step. Not KeyboardInterrupt: that stops the process, and the step runs again."""

_executing: ContextVar[tuple[Replay, str] | None] = ContextVar("runr_workflows_executing", default=None)
"""The step whose body is being executed in this context: how a nested call is told from a parallel one."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The error of a failed attempt, without its stack; `step_id` is None when the workflow function failed."""

    step_id: str | None
    name: str
    message: str


class Replay:
    """The state of one invocation: ids given, results recalled, and the op that ends it.

    `parallel`: whether step calls may be made while the body of another is executed (async workflows). Where they may
    not, such a call is a nested one, whichever thread makes it.
    """

    def __init__(self, memo: Mapping[str, Mapping[str, Any]], *, parallel: bool, capture_input: bool) -> None:
        self.op: str | None = None
        """The JSON of the op to answer; the first one recorded stays."""
        self.failure: FailedAttempt | None = None
        """What failed, if the op says that a step or the workflow function did; a memoized failure is none."""
        self.recalled = 0
        """How many memoized steps the code has passed."""
        self._memo = memo
        self._ids = StepIds()
        self._parallel = parallel
        self._capture_input = capture_input
        self._owner: str | None = None

    @property
    def is_replaying(self) -> bool:
        """Whether the code running now has run in an earlier invocation, as far as the memoized steps tell."""
        return self._owner is None and self.recalled < len(self._memo)

    @property
    def is_executing(self) -> bool:
        """Whether the body of a step is being executed and has not ended yet."""
        return self._owner is not None and self.op is None

    def begin(self, call: StepCall) -> str:
        """The step id of a call, in call order. Refuses a call from inside a body, so that user code cannot go on."""
        executing = _executing.get()
        if executing is not None and executing[0] is self:
            self.fail(NestedStepError(call.user_id, executing[1]))
        elif self.is_executing and not self._parallel:
            self.fail(NestedStepError(call.user_id, str(self._owner)))
        if self.op is not None:
            raise StepInterrupt
        return self._ids.assign(call.user_id)

    def perform(self, call: StepCall, step_id: str) -> StepFlow:
        """The flow of one call: at most one body to execute, then the memoized result or StepInterrupt.

        Raises StepError for a step that failed for good. The first call without a stored result owns the invocation:
        whatever is called later is ignored.
        """
        if self.op is not None or self._owner is not None:
            raise StepInterrupt
        if step_id in self._memo:
            return self._recall(call, step_id)
        if call.body is None:
            self._end(call.op, call, step_id, call.fields)
            raise StepInterrupt
        given = call.input_text() if self._capture_input else None
        self._owner = step_id
        outer = _executing.get()
        _executing.set((self, step_id))
        started = perf_counter()
        try:
            value = yield call.body
            self._completed(call, step_id, value, _milliseconds_since(started), given)
        except _BODY_FAULTS as error:
            took, failure = {"duration_ms": _milliseconds_since(started)}, failure_of(error)
            self._note(failure, step_id)
            self._end("step_failed", call, step_id, {**call.fields, **took, **failure.fields()}, input=given)
        finally:
            _executing.set(outer)
            if self.op is None:  # the body was cancelled by user code (a timeout around it): nothing happened
                self._owner = None
        raise StepInterrupt

    def returned(self, value: object) -> None:
        """The workflow function returned; counts only if no step ended the invocation before."""
        if self.op is not None:
            return
        try:
            output = encode(value, "the workflow's return value")
        except SerializationError as error:
            self.fail(error)
        else:
            self.op = _op_text({"op": "run_completed"}, output=output)

    def fail(self, error: BaseException) -> None:
        """The workflow function raised; counts only if no step ended the invocation before."""
        if self.op is None:
            failure = failure_of(error)
            self._note(failure, None)
            self.op = _op_text({"op": "run_failed", **failure.fields()})

    def _note(self, failure: Failure, step_id: str | None) -> None:
        if self.op is None:
            self.failure = FailedAttempt(step_id, failure.error["name"], failure.error["message"])

    def _recall(self, call: StepCall, step_id: str) -> Any:
        self.recalled += 1
        stored = self._memo[step_id]
        status = stored.get("status")
        if status == "completed":
            return stored.get("output")
        if status != "failed":
            self.fail(UnknownStepStatusError(step_id, status))
            raise StepInterrupt
        error = stored.get("error")
        described = error if isinstance(error, Mapping) else {"message": error}
        name, message, stack = (described.get(key) for key in ("name", "message", "stack"))
        cls = InvokeError if call.op == "invoke" else StepError
        raise cls(
            str(name or "Error"), str(message or ""), step_id=step_id, stack=None if stack is None else str(stack)
        )

    def _completed(self, call: StepCall, step_id: str, value: object, took: int, given: str | None) -> None:
        output = encode(value, f"the return value of step {step_id!r}")
        self._end("step_completed", call, step_id, {**call.fields, "duration_ms": took}, input=given, output=output)

    def _end(self, op: str, call: StepCall, step_id: str, fields: Mapping[str, object], **texts: str | None) -> None:
        text = _op_text({"op": op, "id": step_id, "name": call.user_id, **fields}, **texts)
        if self.op is None:
            self.op = text


def _op_text(fields: Mapping[str, object], **texts: str | None) -> str:
    """An op as JSON; `texts` are fields that are JSON already and are spliced in, None ones left out."""
    spliced = "".join(f',"{name}":{text}' for name, text in texts.items() if text is not None)
    return encode(fields, "the step's arguments")[:-1] + spliced + "}"


def _milliseconds_since(started: float) -> int:
    return round((perf_counter() - started) * 1000)
