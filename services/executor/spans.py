"""Spans of a run, built after the fact: one for each invocation, one below it for each step that it executed.

All of them belong to the trace of the request that started the run, over days and processes: its `traceparent` is kept
with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.core.domain.cause import Answered, FunctionFailed
from services.core.runtime.clock import Clock
from services.core.runtime.ids import ulid_text
from services.core.runtime.telemetry import Telemetry
from services.core.store.commit_item import CommitItem
from services.executor.lease import Lease

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class InvocationSpan:
    """An invocation that has begun: when (unix ms), and the trace context that its request carries."""

    started_ms: int
    traceparent: str | None


class RunSpans:
    """Records what an executor did for its runs. Costs nothing while traces are off."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._telemetry = telemetry
        self._clock = clock

    def begin(self, lease: Lease) -> InvocationSpan:
        """An invocation begins."""
        if not self._telemetry.enabled:
            return InvocationSpan(0, lease.trace)
        return InvocationSpan(self._clock.unix_ms(), self._telemetry.reserve(lease.trace))

    def end(
        self, span: InvocationSpan, lease: Lease, cause: Answered | FunctionFailed, item: CommitItem | None
    ) -> None:
        """It has ended and `item` was committed (None: fenced, nothing was)."""
        if not self._telemetry.enabled:
            return
        end_ms = self._clock.unix_ms()
        fault = cause.fault if isinstance(cause, FunctionFailed) else None
        self._telemetry.record(
            f"invoke {lease.entry.name}",
            start_ns=span.started_ms * _NS_PER_MS,
            end_ns=end_ms * _NS_PER_MS,
            parent=lease.trace,
            identity=span.traceparent,
            attributes={"runr.run_id": ulid_text(lease.run), "runr.attempt": lease.attempt},
            error=None if fault is None else f"{fault.name}: {fault.message}",
        )
        for sid, duration_ms, error in _executions(item):
            self._telemetry.record(
                f"step {sid}",
                start_ns=max(span.started_ms, end_ms - duration_ms) * _NS_PER_MS,
                end_ns=end_ms * _NS_PER_MS,
                parent=span.traceparent,
                attributes={"runr.run_id": ulid_text(lease.run), "runr.step_id": sid},
                error=error,
            )


def _executions(item: CommitItem | None) -> list[tuple[str, int, str | None]]:
    """What was executed: step id, duration in ms, error. A failed attempt that is final is one execution, not two."""
    if item is None:
        return []
    failed = {row.sid: (row.sid, row.ms, row.error) for row in item.attempt_rows if row.sid is not None}
    stored = [(row.sid, row.ms, row.error) for row in item.step_rows if row.sid not in failed]
    opened = [(row.sid, 0, None) for row in item.wait_rows if row.kind in "sec" and row.sid is not None]
    return [*failed.values(), *stored, *opened]
