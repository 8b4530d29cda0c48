"""The rows of the table: which figures are shown, what they shall be, and how they compare with a peer's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.bench.figures import Line


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a workload. `bounds` and `ratios` are by transport; a ratio is ours over the best peer's.

    `more_is_better` says on which side of its bound a figure is good. Labels that a row does not name may be any, and
    the worst of the lines found is shown.
    """

    workload: str
    metric: str
    title: str
    unit: str
    more_is_better: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    digits: int = 1

    def find(self, lines: Iterable[Line], engine: str, transport: str) -> float | None:
        """The value of an engine, None when it was not measured."""
        values = [line.value for line in lines if self._is_of(line, engine, transport)]
        if not values:
            return None
        return min(values) if self.more_is_better else max(values)

    def is_met(self, value: float, transport: str) -> bool | None:
        """Whether a value is within its bound; None without one."""
        bound = self.bounds.get(transport)
        if bound is None:
            return None
        return value >= bound if self.more_is_better else value <= bound

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values."""
        found = list(values)
        if not found:
            return None
        return max(found) if self.more_is_better else min(found)

    def ratio(self, ours: float, theirs: float) -> float | None:
        """How many times better ours is: over 1 is better. None where a zero makes it senseless."""
        if not ours or not theirs:
            return None
        return ours / theirs if self.more_is_better else theirs / ours

    def _is_of(self, line: Line, engine: str, transport: str) -> bool:
        return (
            (line.engine, line.transport, line.workload, line.metric) == (engine, transport, self.workload, self.metric)
            and all(line.labels.get(name) == wanted for name, wanted in self.labels.items())
            and ("process" in line.labels) == ("process" in self.labels or self.metric == "memory_x")
        )


def _both(value: float) -> dict[str, float]:
    return {"http": value, "stream": value}


ROWS = (
    Row("W1", "step_p50_ms", "a step of a run alone, p50", "ms", bounds={"http": 1.0, "stream": 0.8}, digits=2),
    Row("W1", "run_p50_ms", "that run of 10 steps, p50", "ms", digits=1),
    Row(
        "W2",
        "steps_per_s",
        "2,000 runs of 5 steps",
        "steps/s",
        more_is_better=True,
        bounds={"http": 5_000, "stream": 9_000},
        ratios={"http": 2.0, "stream": 3.5},
        digits=0,
    ),
    Row("W3", "starts_per_s", "starts, one a request", "1/s", True, {"mode": "single"}, _both(4_400), digits=0),
    Row("W3", "starts_per_s", "starts, 100 a request", "1/s", True, {"mode": "batch"}, _both(20_000), digits=0),
    Row("W4", "late_p99_ms", "1,000 sleeps of 2 s, lateness p99", "ms", bounds=_both(10)),
    Row(
        "W5", "events_per_s", "events to waits, one a request", "1/s", True, {"mode": "single"}, _both(2_500), digits=0
    ),
    Row("W5", "events_per_s", "events to waits, 100 a request", "1/s", True, {"mode": "batch"}, digits=0),
    Row("W5", "alone_p50_ms", "one event alone, p50", "ms", bounds=_both(2.5)),
    Row("W6", "cpu_pct", "CPU of sleeping runs, services and Postgres", "%", bounds=_both(2.0)),
    Row("W6", "memory_x", "memory of a service, asleep to empty", "x", bounds=_both(1.2), digits=2),
    Row("W6", "late_p99_ms", "W4 beside them, lateness p99", "ms", bounds=_both(20)),
    Row("W7", "lost", "runs lost by kill -9 of all services", "runs", bounds=_both(0), digits=0),
    Row("W7", "recovery_s", "from the kill to the last end", "s", bounds=_both(2.0)),
    Row("W7", "repeated_steps", "steps executed twice", "steps", digits=0),
    Row("W7", "repeated_beyond", "of them not in flight", "steps", bounds=_both(0), digits=0),
    Row("W8", "p50_ms", "a parent with 200 children", "ms", bounds=_both(150), digits=0),
    Row("growth", "total_s", "one run of 2,000 steps", "s", labels={"mode": "plain"}),
    Row(
        "growth",
        "last_to_first_quarter",
        "its last 500 steps to its first 500",
        "x",
        labels={"mode": "plain"},
        bounds={"stream": 1.3},
    ),
    Row("growth", "total_s", "the same, 100 steps an answer", "s", labels={"mode": "checkpoint"}, digits=2),
    Row(
        "growth",
        "last_to_first_quarter",
        "its last 500 steps to its first 500",
        "x",
        labels={"mode": "checkpoint"},
        bounds={"http": 1.3},
    ),
    Row("kit", "test_p50_ms", "a month in the test kit, Python", "ms", labels={"sdk": "python"}, bounds={"http": 50}),
    Row("kit", "test_p50_ms", "the same, TypeScript", "ms", labels={"sdk": "typescript"}, bounds={"http": 50}),
    Row("kit", "first_ms", "the first test of a process, the slower", "ms"),
    Row("tenants", "starts_per_s", "starts of 200 tenants, 256 batches in flight", "1/s", True, digits=0),
    Row("tenants", "request_p99_ms", "their requests, p99", "ms", digits=0),
    Row("tenants", "refused", "requests refused", "requests", digits=0),
    Row("backlog", "alone_p50_ms", "a run of another tenant, p50", "ms"),
    Row("backlog", "beside_p50_ms", "beside 50,000 queued runs, p50", "ms"),
    Row("big", "alone_p99_ms", "a small start, p99", "ms"),
    Row("big", "beside_p99_ms", "beside eight of 1 MiB, p99", "ms"),
    Row("slow-postgres", "steps_per_s", "steps while Postgres sorts", "steps/s", True, digits=0),
    Row("frozen", "most_s", "one of two executors frozen: 70 % of 1,000 runs", "s"),
    Row("frozen", "done_s", "all of them, by lease expiry", "s"),
)
