"""Spans of what an executor does for a run: it claims it, invokes its function, and stores what the steps came to.

All of them go below the start of the run, over days and processes. Steps are built after the fact from what is stored;
an invocation's id is made before it begins, because the function's request carries it.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

from msgspec.structs import replace
from opentelemetry.trace import SpanKind

from services.core.engine.run_spans import NS_PER_MS, WAIT_WORDS, RunSpans, run_attributes
from services.core.runtime.telemetry import Attribute, Telemetry
from services.core.store.commit_item import CommitItem, Fenced
from services.executor.lease import Lease

_ERROR_CHARS = 1_000
_MAX_OPENED = 100
"""Names of opened steps that the span of an invocation has at most."""


class ExecutorSpans:
    """Records what an executor does. A run that is not sampled, or all while traces are off, costs a look at a flag."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._runs = RunSpans(telemetry)

    def now_ns(self) -> int:
        """The clock of spans."""
        return self._telemetry.now_ns()

    def claimed(self, lease: Lease, begun_ns: int, *, found_by: str) -> None:
        """The run was claimed and what it has memoized was read. `found_by`: hint, look or timer."""
        if not self._runs.follows(lease.trace):
            return
        self._telemetry.record(
            "claim",
            start_ns=begun_ns,
            end_ns=self.now_ns(),
            parent=lease.trace,
            attributes={
                **run_attributes(lease.run, lease.entry.name),
                "runr.found_by": found_by,
                "runr.steps": lease.steps,
            },
        )

    def unrecorded(self, lease: Lease) -> Invocation | None:
        """In place of all invocations of a run of which none is recorded; None where each is."""
        return None if self._runs.follows(lease.trace) else Invocation(lease, lease.trace)

    def invocation(self, lease: Lease) -> Invocation:
        """An invocation of the run's function, from its request to the commit of its end: a context manager."""
        if lease.trace is None or not self._runs.follows(lease.trace):
            return Invocation(lease, lease.trace)
        return _RecordedInvocation(self._telemetry, self._runs, lease, self._telemetry.below(lease.trace))

    def nothing(self, lease: Lease) -> Invocation:
        """In place of an invocation, where a commit is all that is done: it has no span."""
        return Invocation(lease, lease.trace)


class Invocation:
    """One invocation, of which nothing is recorded. `traceparent` is its span's, or of the run's start where it has
    none.
    """

    def __init__(self, lease: Lease, traceparent: str | None) -> None:
        self.traceparent = traceparent
        self._lease = lease

    def __enter__(self) -> Self:
        self._lease.span = self.traceparent
        return self

    def answered(self) -> None:
        """The function has answered, reported something, or failed to."""

    def committing(self, item: CommitItem) -> CommitItem:
        """What is to be committed of that: the item, its children placed in the trace."""
        return item

    def committed(self) -> None:
        """It is committed. An invocation over a stream has many commits, each with steps and children of its own."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


class _RecordedInvocation(Invocation):
    """One invocation with a span."""

    def __init__(self, telemetry: Telemetry, runs: RunSpans, lease: Lease, traceparent: str) -> None:
        super().__init__(lease, traceparent)
        self._telemetry = telemetry
        self._runs = runs
        self._attempt = lease.attempt  # as the function was told; the lease has moved on when the span is recorded
        self._begun_ns = 0
        self._answered_ns = 0
        self._item: CommitItem | None = None
        self._opened: list[str] = []
        self._failure: str | None = None

    def __enter__(self) -> Self:
        self._begun_ns = self._telemetry.now_ns()
        return super().__enter__()

    def answered(self) -> None:
        """See `Invocation`."""
        self._answered_ns = self._telemetry.now_ns()

    def committing(self, item: CommitItem) -> CommitItem:
        """See `Invocation`."""
        self._item = item
        if item.start_rows:
            placed = tuple(row._replace(trace=self._runs.place(self.traceparent)) for row in item.start_rows)
            self._item = replace(item, start_rows=placed)
        return self._item

    def committed(self) -> None:
        """See `Invocation`."""
        if self._item is None:
            return
        item, lease = self._item, self._lease
        self._failure = next((_told(row.error) for row in item.attempt_rows if row.sid is None), None)
        opened = [f"{WAIT_WORDS[row.kind]} {row.sid}" for row in item.wait_rows if row.sid and row.run == lease.run]
        self._opened += opened[: _MAX_OPENED - len(self._opened)]
        self._record_steps(item)
        self._record_children(item)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease = self._lease
        attributes: dict[str, Attribute] = {
            **run_attributes(lease.run, lease.entry.name),
            "runr.attempt": self._attempt,
        }
        failure = self._failure
        if self._opened:
            attributes["runr.opened"] = self._opened
        if isinstance(error, Fenced):
            attributes["runr.fenced"] = True
            failure = "fenced: the run was not held by this process any more"
        elif error is not None:
            failure = f"cut off: {type(error).__name__}"
        self._telemetry.record(
            f"invoke {lease.entry.name}",
            start_ns=self._begun_ns,
            end_ns=self._telemetry.now_ns(),
            parent=lease.trace,
            identity=self.traceparent,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            error=failure,
        )

    def _record_steps(self, item: CommitItem) -> None:
        for sid, start_ns, end_ns, error in self._laid_out(_executions(item)):
            self._telemetry.record(
                f"step {sid}",
                start_ns=start_ns,
                end_ns=end_ns,
                parent=self.traceparent,
                attributes={**run_attributes(self._lease.run, self._lease.entry.name), "runr.step_id": sid},
                error=error,
            )

    def _laid_out(self, executed: list[_Execution]) -> list[tuple[str, int, int, str | None]]:
        """When each began and ended: one after another up to the answer, or side by side if that is too long."""
        total_ns = sum(ms for _, ms, _ in executed) * NS_PER_MS
        in_a_row = total_ns <= self._answered_ns - self._begun_ns
        end_ns = self._answered_ns
        found = []
        for sid, ms, error in reversed(executed):
            start_ns = max(self._begun_ns, end_ns - ms * NS_PER_MS)
            found.append((sid, start_ns, end_ns, error))
            end_ns = start_ns if in_a_row else end_ns
        return found

    def _record_children(self, item: CommitItem) -> None:
        names = self._lease.definitions.workflows
        for row in item.start_rows:
            # A start with an idempotency key may have led to another run, which is in a trace already.
            if row.idem is None:
                self._runs.started(
                    row.id,
                    names[row.wf].name,
                    trace=row.trace,
                    parent=self.traceparent,
                    begun_ns=self._answered_ns,
                )


_Execution = tuple[str, int, str | None]
"""Step id, duration in ms, error."""


def _executions(item: CommitItem) -> list[_Execution]:
    """What was executed, in order. A failed attempt that is final is one execution, not two; it came last."""
    failed = {row.sid: (row.sid, row.ms, _told(row.error)) for row in item.attempt_rows if row.sid is not None}
    stored = [
        (row.sid, row.ms, None if row.error is None else _told(row.error))
        for row in item.step_rows
        if row.sid not in failed
    ]
    return [*stored, *failed.values()]


def _told(error: str) -> str:
    """An error as it is stored, for people."""
    found = json.loads(error)
    return f"{found.get('name')}: {found.get('message')}"[:_ERROR_CHARS]
