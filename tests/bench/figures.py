"""Figures: what a workload measured, as values, medians of runs, and JSON lines."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Labels = Mapping[str, str | int | float]
Key = tuple[str, tuple[tuple[str, str | int | float], ...]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one run of a workload. `labels` tell apart figures of one metric: `{"process": "executor"}`."""

    metric: str
    value: float
    unit: str
    labels: Labels = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What is the same in the figures that a median is taken of."""
        return self.metric, tuple(sorted(self.labels.items()))


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of a workload over all its runs, in the order of the runs."""

    engine: str
    workload: str
    transport: str
    metric: str
    unit: str
    values: tuple[float, ...]
    labels: Labels = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.values)

    def json(self) -> str:
        """One JSON object without a line break; `value` is the median, `runs` has the values behind it."""
        return json.dumps(
            {
                "engine": self.engine,
                "workload": self.workload,
                "transport": self.transport,
                "metric": self.metric,
                "value": rounded(self.value),
                "unit": self.unit,
                **self.labels,
                "runs": [rounded(value) for value in self.values],
            }
        )


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest of the values that at least `percent` of them do not exceed (nearest rank).

    Raises ValueError when there are none: a figure of nothing must not look like one.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a percentile of no values")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread_ms(prefix: str, seconds: Sequence[float], percents: Sequence[int] = (50, 99)) -> list[Figure]:
    """Percentiles of durations as figures in milliseconds: `<prefix>_p50_ms`, … and `<prefix>_max_ms`."""
    shown = [Figure(f"{prefix}_p{percent}_ms", percentile(seconds, percent) * 1e3, "ms") for percent in percents]
    return [*shown, Figure(f"{prefix}_max_ms", max(seconds) * 1e3, "ms")]


def labelled(figures: Iterable[Figure], **labels: str | int | float) -> list[Figure]:
    """The figures with more labels."""
    return [Figure(each.metric, each.value, each.unit, {**labels, **each.labels}) for each in figures]


def lines_of(engine: str, workload: str, transport: str, runs: Sequence[Sequence[Figure]]) -> list[Line]:
    """The figures of several runs of a workload, put together: in the order of their first appearance."""
    found: dict[Key, list[Figure]] = {}
    for run in runs:
        for figure in run:
            found.setdefault(figure.key, []).append(figure)
    return [
        Line(
            engine=engine,
            workload=workload,
            transport=transport,
            metric=figures[0].metric,
            unit=figures[0].unit,
            values=tuple(figure.value for figure in figures),
            labels=dict(figures[0].labels),
        )
        for figures in found.values()
    ]


def read_line(text: str) -> Line:
    """What `Line.json` wrote."""
    known: dict[str, Any] = json.loads(text)
    del known["value"]
    values = tuple(known.pop("runs"))
    own = {name: known.pop(name) for name in ("engine", "workload", "transport", "metric", "unit")}
    return Line(**own, values=values, labels=known)


def rounded(value: float) -> float:
    """Four digits are more than a measurement holds; big numbers keep their integer part."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, max(0, 3 - math.floor(math.log10(abs(value)))))
