"""Counts what happens to events and runs, once for each batch that was committed."""

from __future__ import annotations

from collections.abc import Iterable

from services.core.runtime.metric_table import (
    EVENTS_ACCEPTED,
    RUNS_ENDED,
    RUNS_RECOVERED,
    RUNS_STARTED,
    TIMER_LATENESS,
)
from services.core.runtime.metrics import Counter, Metrics


class RunMeter:
    """The counters of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._new = metrics.counter(EVENTS_ACCEPTED, "new")
        self._duplicate = metrics.counter(EVENTS_ACCEPTED, "duplicate")
        self._lateness = metrics.histogram(TIMER_LATENESS)
        # Told from the start: an alert looks at how much they rise, also from none.
        self._recovered = {
            outcome: metrics.counter(RUNS_RECOVERED, outcome) for outcome in ("queued", "failed", "parked")
        }
        self._started: dict[str, Counter] = {}
        self._ended: dict[str, Counter] = {}

    @classmethod
    def off(cls) -> RunMeter:
        """Counts for nobody."""
        return cls(Metrics())

    def accepted(self, *, new: int, duplicate: int) -> None:
        """So many events are accepted, and so many were there already."""
        self._new.value += new
        self._duplicate.value += duplicate

    def started(self, source: str, count: int = 1) -> None:
        """So many runs are started by this: `api`, `event`, `queue`, `cron`, `invoke` or `replay`."""
        counter = self._started.get(source)
        if counter is None:
            counter = self._started[source] = self._metrics.counter(RUNS_STARTED, source)
        counter.value += count

    def ended(self, status: str, count: int = 1) -> None:
        """So many runs have ended in this status."""
        counter = self._ended.get(status)
        if counter is None:
            counter = self._ended[status] = self._metrics.counter(RUNS_ENDED, status)
        counter.value += count

    def recovered(self, *, queued: int, failed: int, parked: int) -> None:
        """What became of runs whose process died: in the queue again, failed, kept for the worker that has them."""
        for outcome, count in (("queued", queued), ("failed", failed), ("parked", parked)):
            self._recovered[outcome].add(count)

    def fired(self, late_ms: Iterable[float]) -> None:
        """Timers were fired so many milliseconds after they were due."""
        for each in late_ms:
            self._lateness.observe(max(0.0, each) / 1_000)
