"""All workloads, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tests.bench.figures import Figure
from tests.bench.stack import BenchStack
from tests.bench.workloads.children import parent_and_children
from tests.bench.workloads.events import events
from tests.bench.workloads.recovery import killed_services
from tests.bench.workloads.starts import starts
from tests.bench.workloads.steps import long_run, many_runs, one_run_alone
from tests.bench.workloads.strain import STRAIN
from tests.bench.workloads.timers import sleepers, sleeps

Measure = Callable[[BenchStack], Awaitable[list[Figure]]]
"""One run of a workload on a fresh stack."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured, in words, and how; None: not on the engine. One of `strain` is measured only when it is asked
    for.
    """

    title: str
    measure: Measure | None
    strain: bool = False


def workloads(*, asleep: int) -> Mapping[str, Workload]:
    """Name → workload, in the order in which they are run. `asleep` is the number of sleeping runs of W6."""
    return {
        "W1": Workload("one run of 10 steps at a time", one_run_alone),
        "W2": Workload("2,000 runs of 5 steps", many_runs),
        "W3": Workload("5,000 starts, not executed", starts),
        "W4": Workload("1,000 sleeps of 2 s", sleeps),
        "W5": Workload("1,000 events to 1,000 waits", events),
        "W6": Workload(f"{asleep:,} sleeping runs", partial(sleepers, count=asleep)),
        "W7": Workload("kill -9 of all four services among 500 runs", killed_services),
        "W8": Workload("a parent with 200 children", parent_and_children),
        "growth": Workload("one run of 2,000 steps", long_run),
        "kit": Workload("a test of a month's workflow with the test kits", None),
        **{name: Workload(title, measure, strain=True) for name, (title, measure) in STRAIN.items()},
    }
