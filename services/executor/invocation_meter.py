"""Counts what an executor asks of functions, and what came of it."""

from __future__ import annotations

from services.core.domain.cause import Answered, FunctionFailed, Reported, Unwound
from services.core.runtime.metric_table import FUNCTION_DURATION, FUNCTION_ERRORS
from services.core.runtime.metrics import Metrics
from services.core.store.commit_item import CommitItem

_CODE = "WorkflowError"
"""The kind of an error that the code of a workflow raised outside of a step: its own name may be anything."""


class InvocationMeter:
    """The counters of one process."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        """Without `metrics` it counts for nobody."""
        self._metrics = metrics = Metrics() if metrics is None else metrics
        self._calls = metrics.histogram(FUNCTION_DURATION)

    def called(self, took_s: float) -> None:
        """A function was asked over HTTP, and has answered or not, in so many seconds."""
        self._calls.observe(took_s)

    def failed(self, item: CommitItem, cause: Answered | FunctionFailed | Reported | Unwound) -> None:
        """An attempt of the function is committed as failed, if one is in the item."""
        if any(row.sid is None for row in item.attempt_rows):
            kind = cause.fault.name if isinstance(cause, FunctionFailed) else _CODE
            self._metrics.counter(FUNCTION_ERRORS, kind).value += 1
