"""Replay over the worker stream: a step call goes on once its op is acknowledged. The other rules are `replay.py`'s."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from threading import RLock, get_ident
from time import time
from typing import Any, Protocol

from ..calls import StepCall
from ..errors import NonRetriableError, SharedStepIdError
from ..interrupt import StepInterrupt
from ..lost_steps import StepWatch
from ..replay import Replay, Report, StepFlow, executing, report_of_failure, step_report
from ..values import decode
from .thread_ids import ThreadIds

Stored = Mapping[str, Any]
"""A memoized step, as in `steps` of an execute request."""


MAX_OP_BYTES = 8 * 1024 * 1024
"""A longer op is not sent, as a longer answer is not taken over HTTP."""


class TooLarge(NonRetriableError):
    """An op that is too long to be sent; it is named as the engine names what is over its own limits."""

    def __init__(self, what: str, report: Report) -> None:
        super().__init__(f"{what} takes {len(report.text.encode())} bytes as an op, at most {MAX_OP_BYTES} can be sent")


def is_too_large(report: Report) -> bool:
    """Whether an op is too long to be sent."""
    return len(report.text) * 4 > MAX_OP_BYTES and len(report.text.encode()) > MAX_OP_BYTES


class Calls(Protocol):
    """Where step calls wait for the engine: in coroutines or in threads.

    `commit` and `opened` are called by the driver of the flow, like a body, and may be async.
    """

    def commit(self, call: StepCall, step_id: str, report: Report) -> Any:
        """Sends an op. Returns what is memoized for the step, or None if that is what a completed body returned."""

    def opened(self, step_id: str) -> Any:
        """Returns what is memoized for a step that was open before this invocation began."""

    def left(self, step_id: str) -> None:
        """A body has ended, and there is nothing to send."""

    def refused(self) -> None:
        """A step call has failed the whole invocation: `op` of the replay is set."""


class LiveReplay(Replay):
    """The state of one invocation of which many steps are executed.

    In a sync workflow, calls that come from other threads may overlap only where they are known not to come from inside
    a body: by the context that the workflow runs in (`executing`), of which such a thread must have a copy.
    """

    def __init__(
        self,
        memo: Mapping[str, Stored],
        open_steps: Iterable[str],
        *,
        parallel: bool,
        capture_input: bool,
        watch: StepWatch | None = None,
    ) -> None:
        super().__init__(memo, parallel=parallel, capture_input=capture_input)
        self.looks_back = watch
        self.lock = RLock()
        """Held by whoever lets a body begin, and by whoever decides that none begins any more."""
        self.busy: dict[str, None] = {}
        """Steps whose body is being executed, or was and whose op has not been handed over yet."""
        self.closing = False
        """Whether no step begins any more."""
        self.over = False
        """Whether the invocation has ended: user code is only being unwound."""
        self.calls: Calls | None = None
        """None before the invocation begins, and when no code of it runs any more."""
        self._open = frozenset(open_steps)
        self.known = len(memo) + len(self._open - memo.keys())
        self._has_begun = False
        self._refused: set[str] = set()
        self._threads = None if parallel else ThreadIds()
        self.thread: int | None = None
        """That of a sync workflow function, once it runs."""

    @property
    def has_open(self) -> bool:
        """Whether steps were open when this invocation began."""
        return bool(self._open)

    def waits_for(self, step_id: str) -> bool:
        """Whether the step was open when this invocation began."""
        return step_id in self._open

    @property
    def is_closed(self) -> bool:
        """Whether no step begins any more."""
        return self.closing or self.op is not None

    @property
    def is_over(self) -> bool:
        """Whether user code is only being unwound."""
        return self.over

    @property
    def is_replaying(self) -> bool:
        """Whether the code running now has run in an earlier invocation, as far as memoized and open steps tell."""
        return not self._has_begun and self.recalled < self.known

    @property
    def is_executing(self) -> bool:
        """Whether a body is being executed, or its op has not been handed over yet."""
        return bool(self.busy)

    def _asked(self, call: StepCall, step_id: str) -> Report:
        """See `Replay`. Here each op says itself when a sleep was asked for."""
        fields = {**call.fields, "asked_at": time() * 1000} if call.op == "sleep" else call.fields
        return step_report(call.op, call, step_id, fields)

    def begin(self, call: StepCall) -> str:
        """As in `Replay`, from any thread. Refuses an id that another thread of a sync workflow has, or could have."""
        with self.lock:
            step_id = super().begin(call)
            if self._threads is None:
                return step_id
            where = executing.get()
            has_context = where is not None and where[0] is self
            if self._threads.begin(call.user_id, step_id, has_context=has_context):
                if self.looks_back is not None and get_ident() != self.thread:
                    self.looks_back.concurrent = True
                return step_id
            self._threads.end()
            self.fail(SharedStepIdError(call.user_id))
            raise StepInterrupt

    def perform(self, call: StepCall, step_id: str) -> StepFlow:
        """As in `Replay`. The call of a step that is open waits for its result and is not sent again."""
        if step_id in self._open and step_id not in self._memo:
            flow = self._wait(call, step_id)
        else:
            flow = super().perform(call, step_id)
        return flow if self._threads is None else self._until_end(flow, self._threads)

    def _until_end(self, flow: StepFlow, threads: ThreadIds) -> StepFlow:
        try:
            return (yield from flow)
        finally:
            with self.lock:
                threads.end()

    def _wait(self, call: StepCall, step_id: str) -> Generator[Any, Any, Any]:
        if self.is_closed:
            raise StepInterrupt
        assert self.calls is not None
        self.recalled += 1
        stored = yield partial(self.calls.opened, step_id)
        return self._result(call, step_id, stored)

    def _outer_step(self) -> str | None:
        outer = self._body_around()
        if outer is not None:
            self._refused.add(outer)
        return outer

    def _body_around(self) -> str | None:
        where = executing.get()
        if where is not None and where[0] is self:
            return where[1]
        return None if self._parallel else next(iter(self.busy), None)

    def _enter(self, step_id: str) -> None:
        with self.lock:
            if self.is_closed:
                raise StepInterrupt
            self._has_begun = True
            self.busy[step_id] = None

    def _left(self, step_id: str) -> None:
        assert self.calls is not None
        self.calls.left(step_id)

    def _report(self, call: StepCall, step_id: str, report: Report) -> Generator[Any, Any, Any]:
        assert self.calls is not None
        if step_id in self._refused:
            self.calls.left(step_id)
            raise StepInterrupt
        self._has_begun = True
        if is_too_large(report):
            report = report_of_failure(call, step_id, TooLarge("the step", report), 0, None)
        stored = yield partial(self.calls.commit, call, step_id, report)
        if stored is None:
            assert report.output is not None
            return decode(report.output)
        return self._result(call, step_id, stored)

    def _end(self, report: Report) -> None:
        super()._end(report)
        if self.calls is not None:
            self.calls.refused()
