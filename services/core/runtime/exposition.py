"""What is counted in this process as text for Prometheus (`/metrics`), with a registry of our own.

`prometheus_client` writes the text and knows the process's memory and CPU. It is imported when somebody looks for the
first time, in a thread: a service that nobody measures does not pay for it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from services.core.runtime.metrics import Family, Metric, Metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as PrometheusFamily
    from prometheus_client.registry import CollectorRegistry

_SERVICE = "service"


class Exposition:
    """The `/metrics` of one process, over the services in it."""

    def __init__(self, services: Sequence[Metrics]) -> None:
        self._services = tuple(services)
        self._imported = False

    async def text(self) -> bytes:
        """Everything as it is now, in the text format 0.0.4."""
        if not self._imported:
            await asyncio.to_thread(_import)
            self._imported = True
        from prometheus_client.exposition import generate_latest

        # On the loop, whose numbers they are: a thread would see some of them between two changes.
        return generate_latest(self._registry)

    def collect(self) -> Iterator[PrometheusFamily]:
        """The families, for the registry."""
        by_metric: dict[Metric, list[tuple[str, Family]]] = defaultdict(list)
        for metrics in self._services:
            for family in metrics.families():
                by_metric[family.metric].append((metrics.service, family))
        for metric, parts in sorted(by_metric.items(), key=lambda each: each[0].name):
            yield _family(metric, parts)

    @cached_property
    def _registry(self) -> CollectorRegistry:
        from prometheus_client.process_collector import ProcessCollector
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return registry


def _import() -> None:
    import prometheus_client.exposition
    import prometheus_client.process_collector  # noqa: F401


def _family(metric: Metric, parts: Iterable[tuple[str, Family]]) -> PrometheusFamily:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    names = (_SERVICE, *metric.labels)
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=names)
        for service, family in parts:
            for labels, found in family.histograms.items():
                bounds = [*(repr(bound) for bound in metric.bounds), "+Inf"]
                buckets = list(zip(bounds, accumulate(found.counts), strict=True))
                histogram.add_metric((service, *labels), buckets, found.total)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    numbers = make(metric.name, metric.help, labels=names)
    for service, family in parts:
        for labels, value in family.numbers.items():
            numbers.add_metric((service, *labels), value)
    return numbers
