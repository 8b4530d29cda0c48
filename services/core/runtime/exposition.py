"""What is counted in this process as text for Prometheus (`/metrics`), with a registry of our own.

`prometheus_client` writes the text and knows the process's memory and CPU. It works, and is imported, in a thread and
only when somebody looks: a service that nobody measures does not pay for it, and a busy loop is not held up.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from services.core.runtime.metric_table import BUILD_INFO
from services.core.runtime.metrics import Family, Metric, Metrics
from services.core.runtime.version import engine_version

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as PrometheusFamily

_SERVICE = "service"

_Parts = Mapping[Metric, Sequence[tuple[str, Family]]]
"""Of each metric what each service has counted."""


class Exposition:
    """The `/metrics` of one process, over the services in it."""

    def __init__(self, services: Sequence[Metrics]) -> None:
        self._services = tuple(services)

    async def text(self) -> bytes:
        """Everything as it is now, in the text format 0.0.4."""
        for metrics in self._services:
            await metrics.measure()
        # Copied on the loop, whose numbers they are: a thread would see some of them between two changes.
        parts: dict[Metric, list[tuple[str, Family]]] = defaultdict(list)
        for metrics in self._services:
            for family in metrics.families():
                parts[family.metric].append((metrics.service, family))
        return await asyncio.to_thread(_written, parts, [metrics.service for metrics in self._services])


class _Collector:
    """Hands over what was copied."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[PrometheusFamily]:
        for metric in sorted(self._parts, key=lambda each: each.name):
            yield _family(metric, self._parts[metric])


def _written(parts: dict[Metric, list[tuple[str, Family]]], services: Iterable[str]) -> bytes:
    from prometheus_client.exposition import generate_latest
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import CollectorRegistry

    build = Family(BUILD_INFO, {(engine_version(),): 1}, {})
    parts[BUILD_INFO] = [(service, build) for service in services]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(parts))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _family(metric: Metric, parts: Iterable[tuple[str, Family]]) -> PrometheusFamily:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    names = (_SERVICE, *metric.labels)
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=names)
        bounds = [*(repr(bound) for bound in metric.bounds), "+Inf"]
        for service, family in parts:
            for labels, found in family.histograms.items():
                buckets = list(zip(bounds, accumulate(found.counts), strict=True))
                histogram.add_metric((service, *labels), buckets, found.total)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    numbers = make(metric.name, metric.help, labels=names)
    for service, family in parts:
        for labels, value in family.numbers.items():
            numbers.add_metric((service, *labels), value)
    return numbers
