"""Counts what the commit pipeline does."""

from __future__ import annotations

from bisect import bisect_left

from services.core.runtime.metric_table import (
    BATCH_DURATION,
    BATCH_SIZE,
    COMMITS_FENCED,
    COMMITS_REFUSED,
    PIPELINE_WAITING,
    RUNS_ENDED,
    RUNS_STARTED,
    STEP_EXECUTIONS,
    STEP_FAILURES,
    STEP_LATENCY,
)
from services.core.runtime.metrics import Metrics, Read
from services.core.store.commit_item import CommitItem


class PipelineMeter:
    """The counters of one process, whichever of its lives commits."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        """Without `metrics` it counts for nobody."""
        self._metrics = metrics = Metrics() if metrics is None else metrics
        self.fenced = metrics.counter(COMMITS_FENCED)
        self.refused = metrics.counter(COMMITS_REFUSED)
        self._size = metrics.histogram(BATCH_SIZE)
        self._duration = metrics.histogram(BATCH_DURATION)
        self._latency = metrics.histogram(STEP_LATENCY)
        self._executions = metrics.counter(STEP_EXECUTIONS)
        self._failures = metrics.counter(STEP_FAILURES)
        self._children = metrics.counter(RUNS_STARTED, "invoke")

    def watch(self, waiting: Read) -> None:
        """How many commits wait, of the pipeline that works now."""
        self._metrics.watch(PIPELINE_WAITING, waiting)

    def batch(self, items: int, took_s: float) -> None:
        """One transaction of so many items was answered."""
        self._size.observe(items)
        self._duration.observe(took_s)

    def committed(self, item: CommitItem, took_s: float) -> None:
        """The item is committed, so long after it was asked for."""
        # Of every step: what is called here costs more than what it does.
        self._latency.counts[bisect_left(STEP_LATENCY.bounds, took_s)] += 1
        self._latency.total += took_s
        self._executions.value += item.uses
        if item.attempt_rows:
            self._failures.value += sum(row.sid is not None for row in item.attempt_rows)
        if item.start_rows:
            self._children.value += len(item.start_rows)
        if item.end_row is not None:
            self._metrics.counter(RUNS_ENDED, item.end_row.status).value += 1
