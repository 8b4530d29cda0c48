"""What a process counts, so that counting costs next to nothing: plain numbers that only the event loop's thread
changes.

Whoever counts asks once for its instrument (`Metrics.counter`, `Metrics.histogram`) and keeps it: no label is looked up
on the way of a step. What is a fact anyway, as the size of a pool, is read when somebody looks (`Metrics.watch`). What
there is to count is declared in `metric_table.py`; `exposition.py` makes the text that Prometheus reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Read = Callable[[], float | None]
"""The value now; None: there is none to tell."""

MOST_CHILDREN = 500
"""Of one metric in one process. What comes later is counted under `OTHER`, so that no label can fill a memory."""

OTHER = "other"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name without `_total` or `_bucket`, what it says, its labels, and the bounds of a histogram."""

    name: str
    kind: Kind
    help: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()

    @property
    def sample(self) -> str:
        """The name that a query uses; of a histogram the base of its three."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


class Counter:
    """A number that only rises."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        """So many more."""
        self.value += count


class Histogram:
    """How often values were in each of some ranges, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of the values up to each bound and above the one before; the last of those above all."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Distribution(NamedTuple):
    """A histogram as it was: see there."""

    counts: tuple[int, ...]
    total: float


class Family(NamedTuple):
    """One metric with all that was counted of it: by the values of its labels, in their order."""

    metric: Metric
    numbers: Mapping[Labels, float]
    histograms: Mapping[Labels, Distribution]


class Metrics:
    """All that one service of this process counts. `service` is a label of everything."""

    def __init__(self, service: str = "") -> None:
        self.service = service
        self._counters: dict[Metric, dict[Labels, Counter]] = defaultdict(dict)
        self._histograms: dict[Metric, dict[Labels, Histogram]] = defaultdict(dict)
        self._watched: dict[Metric, dict[Labels, Read]] = defaultdict(dict)
        self._asked: list[Callable[[], Awaitable[None]]] = []

    def counter(self, metric: Metric, *values: str) -> Counter:
        """The counter with these values of the metric's labels; the same for the same values."""
        _check(metric, "counter", values)
        children = self._counters[metric]
        return children.setdefault(_bounded(children, values), Counter())

    def histogram(self, metric: Metric, *values: str) -> Histogram:
        """The histogram with these values of the metric's labels; the same for the same values."""
        _check(metric, "histogram", values)
        children = self._histograms[metric]
        return children.setdefault(_bounded(children, values), Histogram(metric.bounds))

    def watch(self, metric: Metric, read: Read, *values: str) -> None:
        """Ask `read` for the value of a gauge, or of a counter that is kept elsewhere, whenever somebody looks.

        It must answer at once, without I/O. A second `watch` of the same labels replaces the first.
        """
        _check(metric, metric.kind, values)
        assert metric.kind != "histogram", f"{metric.name} has many numbers"
        self._watched[metric][values] = read

    def ask(self, measure: Callable[[], Awaitable[None]]) -> None:
        """Await `measure`, which limits its time and raises nothing, before somebody looks: what is not at hand."""
        self._asked.append(measure)

    async def measure(self) -> None:
        """Somebody is about to look."""
        for measure in self._asked:
            await measure()

    def families(self) -> Iterator[Family]:
        """A copy of everything as it is now."""
        for metric, children in self._histograms.items():
            histograms = {labels: Distribution(tuple(each.counts), each.total) for labels, each in children.items()}
            yield Family(metric, {}, histograms)
        for metric in {**self._counters, **self._watched}:
            numbers: dict[Labels, float] = {
                labels: counter.value for labels, counter in self._counters.get(metric, {}).items()
            }
            for labels, read in self._watched.get(metric, {}).items():
                value = read()
                if value is not None:
                    numbers[labels] = value
            if numbers:
                yield Family(metric, numbers, {})


def _bounded(children: Mapping[Labels, object], values: Labels) -> Labels:
    if values in children or len(children) < MOST_CHILDREN:
        return values
    return (OTHER,) * len(values)


def _check(metric: Metric, kind: Kind, values: Labels) -> None:
    assert metric.kind == kind, f"{metric.name} is a {metric.kind}"
    assert len(values) == len(metric.labels), f"{metric.name} has the labels {metric.labels}"
