"""Counts the gRPC calls of a server by method and code, and how long those without streams took."""

from __future__ import annotations

import asyncio
import time

import grpc

from services.core.domain.errors import DomainError
from services.core.rpc.status import row_of
from services.core.runtime.metric_table import GRPC_CALLS, GRPC_DURATION
from services.core.runtime.metrics import Counter, Histogram, Metrics


class CallMeter:
    """The counters of one server. Methods are those that it has, so they are few."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        """Without `metrics` it counts for nobody."""
        self._metrics = Metrics() if metrics is None else metrics
        self._calls: dict[tuple[str, grpc.StatusCode], Counter] = {}
        self._durations: dict[str, Histogram] = {}

    def now_s(self) -> float:
        """The clock of durations."""
        return time.monotonic()

    def ended(self, method: str, code: grpc.StatusCode, *, took_s: float | None) -> None:
        """A call of `method` has ended; `took_s` None: it was a stream, which lasts as long as its caller likes."""
        counter = self._calls.get((method, code))
        if counter is None:
            counter = self._calls[method, code] = self._metrics.counter(GRPC_CALLS, method, code.name)
        counter.value += 1
        if took_s is None:
            return
        histogram = self._durations.get(method)
        if histogram is None:
            histogram = self._durations[method] = self._metrics.histogram(GRPC_DURATION, method)
        histogram.observe(took_s)


def code_of(error: BaseException | None, shown: DomainError | None) -> grpc.StatusCode:
    """How a call ended: `error` is what its servicer raised, `shown` what its caller is told instead."""
    if shown is not None:
        code: grpc.StatusCode = row_of(shown).code
        return code
    if error is None:
        return grpc.StatusCode.OK
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return grpc.StatusCode.CANCELLED
    return grpc.StatusCode.UNKNOWN
