"""The replay core: one invocation of a workflow as a sans-I/O state machine (protocol section 7).

A step call is a generator: it returns the memoized result, or yields the body of `step.run` for its driver to execute,
and reports the op. Over HTTP the first op ends the invocation, with StepInterrupt, unless the answer may hold several
(`checkpoint.py`); over the worker stream (`connect/live_replay.py`) the call goes on when the op is acknowledged.
`step.py` drives it in sync code, `async_runner.py` in async code; all rules are here.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from time import perf_counter, time
from typing import Any, NamedTuple

from .asked import refuse_bad_fields
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
from .lost_steps import StepWatch
from .step_ids import StepIds
from .values import encode

Body = partial[Any]
"""What a driver is to call: the function of a `step.run` with its arguments."""
StepFlow = Generator[Body, Any, Any]

BODY_FAULTS = (Exception, SystemExit, CancelledError)
"""What a body may raise to fail its step. Not KeyboardInterrupt: that stops the process, and the step runs again."""

executing: ContextVar[tuple[Replay, str | None] | None] = ContextVar("runr_workflows_executing", default=None)
"""The step whose body is being executed in this context: how a nested call is told from a parallel one.

None instead of the id: the workflow function itself, where that can be told from a body by nothing else.
"""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The error of a failed attempt; `step_id` is None when the workflow function failed."""

    step_id: str | None
    name: str
    message: str
    traceback: str | None = None
    """From the first line of user code on; None where the error was raised on purpose, or tells all itself."""


class Report(NamedTuple):
    """An op that is to be reported, as JSON. `output` is what a body returned, as JSON; None for every other op."""

    text: str
    failure: FailedAttempt | None = None
    output: str | None = None


class Replay:
    """The state of one invocation: ids given, results recalled, and the op that ends it.

    `parallel`: whether step calls may be made while the body of another is executed (async workflows). Where they may
    not, such a call is a nested one, whichever thread makes it. `watch` notices ids that differ at every call.
    """

    def __init__(
        self,
        memo: Mapping[str, Mapping[str, Any]],
        *,
        parallel: bool,
        capture_input: bool,
        watch: StepWatch | None = None,
    ) -> None:
        self.op: str | None = None
        """The JSON of the op to answer, or of several with commas between them; what is recorded first stays."""
        self.failure: FailedAttempt | None = None
        """What failed, if the op says that a step or the workflow function did; a memoized failure is none."""
        self.asked_at: float | None = None
        """When a sleep was asked for, in unix milliseconds."""
        self.watch = watch
        self.looks_back = watch
        """Who is told of stored steps that were not asked for; over a stream, that is all that is watched."""
        self.recalled = 0
        """How many memoized steps the code has passed."""
        self.known = len(memo)
        """How many there are."""
        self.is_abandoned = False
        """Whether nobody waits for the answer any more."""
        self.has_progressed = False
        """Whether the code has gone on after a new result: the attempts that were counted before were of that step."""
        self._memo = memo
        self._ids = StepIds()
        self._parallel = parallel
        self._capture_input = capture_input
        self._owner: str | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no step begins any more."""
        return self.op is not None

    @property
    def is_over(self) -> bool:
        """Whether user code is only being unwound: nothing that it still does counts."""
        return self.op is not None or self.is_abandoned

    @property
    def is_replaying(self) -> bool:
        """Whether the code running now has run in an earlier invocation, as far as the memoized steps tell."""
        return self._owner is None and self.recalled < self.known

    @property
    def is_executing(self) -> bool:
        """Whether the body of a step is being executed and has not ended yet."""
        return self._owner is not None and self.op is None

    @property
    def takes_turns(self) -> bool:
        """Whether a call that comes while the body of another is executed has its turn after it."""
        return False

    def knows(self, step_id: str) -> bool:
        """Whether the step has a stored result."""
        return step_id in self._memo

    def stored(self, step_id: str) -> Mapping[str, Any] | None:
        """The stored result of the step, for `recall`; None without one, or where no step goes on any more."""
        if self.op is not None or self._owner is not None:
            return None
        return self._memo.get(step_id)

    def end_with_next(self) -> None:
        """The op that is made now is the last one of its answer; here every one is."""

    def cancelled(self) -> None:
        """User code has cancelled a call whose body has ended: its result is recorded, and ends the answer."""
        self.end_with_next()

    def begin(self, call: StepCall) -> str:
        """The step id of a call, in call order. Refuses a call from inside a body, so that user code cannot go on."""
        if self._outer_step() is not None:
            self.refuse_nested(call, "called")
        if self.is_closed:
            raise StepInterrupt
        return self._ids.assign(call.user_id)

    def refuse_nested(self, call: StepCall, how: str) -> None:
        """Fails the invocation, and interrupts, if a body does this with a call: it would wait for itself."""
        outer = self._outer_step()
        if outer is not None:
            self.fail(NestedStepError(call.user_id, outer, how=how))
            raise StepInterrupt

    def refuse_nested_wait(self, inner: str) -> None:
        """Fails the invocation: the body that is executed waits for this call of the workflow."""
        if self.is_executing and self._owner is not None:
            self.fail(NestedStepError(inner, self._owner, how="awaited as a task"))

    def perform(self, call: StepCall, step_id: str) -> StepFlow:
        """The flow of one call: the memoized result, or at most one body to execute and what its report leads to.

        Raises StepError for a step that failed for good. Over HTTP the first call without a stored result owns the
        invocation: whatever is called later is ignored.
        """
        if self.is_closed or self._owner is not None:
            raise StepInterrupt
        if step_id in self._memo:
            return self.recall(call, step_id, self._memo[step_id])
        fault = None if self.watch is None else self.watch.executes(step_id, self._ids)
        if fault is not None:
            self.fail(fault)
            raise StepInterrupt
        if call.body is None:
            refuse_bad_fields(call)
            if self.recalled < self.known:
                self._look_back(step_id)
            return (yield from self._report(call, step_id, self._asked(call, step_id)))
        given = call.input_text() if self._capture_input else None
        self._enter(step_id)
        outer = executing.get()
        executing.set((self, step_id))
        report = None
        started = perf_counter()
        try:
            value = yield call.body
            report = _completed(call, step_id, value, _milliseconds_since(started), given)
        except BODY_FAULTS as error:
            report = report_of_failure(call, step_id, error, _milliseconds_since(started), given)
        finally:
            executing.set(outer)
            if report is None:  # the body was cancelled by user code (a timeout around it): nothing happened
                self._left(step_id)
        if self.recalled < self.known:
            self._look_back(step_id)
        return (yield from self._report(call, step_id, report))

    def returned(self, value: object) -> None:
        """The workflow function returned; counts only if no step ended the invocation before."""
        if self.op is None:
            self._end(report_of_return(value))
            if self.watch is not None:
                self.watch.ended()

    def fail(self, error: BaseException) -> None:
        """The workflow function raised; counts only if no step ended the invocation before."""
        if self.op is None:
            self._end(report_of_error(error))

    def _outer_step(self) -> str | None:
        """The step whose body makes the call that is made now, if that is so."""
        where = executing.get()
        if where is not None and where[0] is self:
            return where[1]
        return None if self._parallel or not self.is_executing else self._owner

    def _look_back(self, step_id: str) -> None:
        """A new step is about to be reported, and the code has not come past all that is memoized."""
        if self.looks_back is not None and not self.is_over:
            self.looks_back.reports(step_id, self._memo, self._ids)

    def _enter(self, step_id: str) -> None:
        """The body of a step is about to be executed."""
        self._owner = step_id

    def _left(self, step_id: str) -> None:
        """It was executed, and there is nothing to report."""
        if self.op is None:
            self._owner = None

    def _asked(self, call: StepCall, step_id: str) -> Report:
        """The op of a call that the engine carries out."""
        if call.op == "sleep":
            self.asked_at = time() * 1000
        return step_report(call.op, call, step_id, call.fields)

    def _report(self, call: StepCall, step_id: str, report: Report) -> StepFlow:
        """What a call leads to whose op is known: here, the end of the invocation."""
        if self.op is None:
            self._end(report)
            if self.watch is not None:
                self.watch.answered(step_id, self._ids)
        raise StepInterrupt

    def _end(self, report: Report) -> None:
        self.op, self.failure = report.text, report.failure

    def recall(self, call: StepCall, step_id: str, stored: Mapping[str, Any]) -> Any:
        """What a call returns whose step has this stored result. Raises StepError for one that failed for good."""
        self.recalled += 1
        if stored.get("status") == "completed":
            return stored.get("output")
        return self._result(call, step_id, stored)

    def _result(self, call: StepCall, step_id: str, stored: Mapping[str, Any]) -> Any:
        """What a call returns, or raises, whose step is memoized."""
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


def report_of_return(value: object) -> Report:
    """The end of a run whose workflow function returned."""
    try:
        output = encode(value, "the workflow's return value")
    except SerializationError as error:
        return report_of_error(error)
    return Report(_op_text({"op": "run_completed"}, output=output))


def report_of_error(error: BaseException) -> Report:
    """A failed attempt of the workflow function."""
    failure = failure_of(error)
    return Report(_op_text({"op": "run_failed", **failure.fields()}), _attempt(failure, None))


def _completed(call: StepCall, step_id: str, value: object, took_ms: int, given: str | None) -> Report:
    # Written out, because this is the op of nearly every step.
    try:
        output = encode(value)
    except SerializationError:
        output = encode(value, f"the return value of step {step_id!r}")  # named where it fails: a name costs as much
    id = encode(step_id)
    name = id if step_id == call.user_id else encode(call.user_id)
    own = encode(call.fields)[1:-1] + "," if call.fields else ""
    input = "" if given is None else f'"input":{given},'
    text = f'{{"op":"step_completed","id":{id},"name":{name},{own}"duration_ms":{took_ms},{input}"output":{output}}}'
    return Report(text, None, output)


def report_of_failure(call: StepCall, step_id: str, error: BaseException, took_ms: int, given: str | None) -> Report:
    """A failed attempt of a step."""
    failure = failure_of(error)
    fields = {**call.fields, "duration_ms": took_ms, **failure.fields()}
    report = step_report("step_failed", call, step_id, fields, input=given)
    return report._replace(failure=_attempt(failure, step_id))


def step_report(
    op: str, call: StepCall, step_id: str, fields: Mapping[str, object], *, input: str | None = None
) -> Report:
    """The op of a step call with these fields of its own."""
    return Report(_op_text({"op": op, "id": step_id, "name": call.user_id, **fields}, input=input))


def _attempt(failure: Failure, step_id: str | None) -> FailedAttempt:
    traceback = None if failure.is_deliberate else failure.error.get("stack")
    return FailedAttempt(step_id, failure.error["name"], failure.error["message"], traceback)


def _op_text(fields: Mapping[str, object], **texts: str | None) -> str:
    """An op as JSON; `texts` are fields that are JSON already and are spliced in, None ones left out."""
    spliced = "".join(f',"{name}":{text}' for name, text in texts.items() if text is not None)
    return encode(fields, "the step's arguments")[:-1] + spliced + "}"


def _milliseconds_since(started: float) -> int:
    return round((perf_counter() - started) * 1000)
