"""W1, W2 and the growth of state: how fast steps go, one run alone, many runs together, one long run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from tests.bench.figures import Figure, labelled, spread_ms
from tests.bench.postgres_work import PostgresWork
from tests.bench.processes import Meter
from tests.bench.stack import BenchStack
from tests.bench.workloads.load import in_flight

_ALONE_RUNS = 100
_ALONE_STEPS = 10
_RUNS = 2_000
_STEPS = 5
_AT_ONCE = 64
_LONG_STEPS = 2_000
_LIMIT_S = 120.0
_WARM_RUNS = 100
SURE = 0.7
"""This part of the shortest run so far, no run is expected to end in."""


async def warm_up(stack: BenchStack) -> None:
    """Lets connections open, statements be prepared and code be loaded."""
    mark = await stack.mark()
    await in_flight(_WARM_RUNS, 10, lambda _: stack.start("chain", {"steps": _STEPS}))
    await stack.until_ended(_WARM_RUNS, mark, within_s=_LIMIT_S)
    await stack.take_marks()


async def one_run_alone(stack: BenchStack) -> list[Figure]:
    """W1: runs of 10 steps, one at a time. A step lasts from the start of its body to the start of the next one's."""
    await warm_up(stack)
    whole: list[float] = []
    with Meter(stack.pids) as meter:
        for _ in range(_ALONE_RUNS):
            mark, began = await stack.mark(), time.perf_counter()
            await stack.start("chain", {"steps": _ALONE_STEPS})
            sure_s = min(whole, default=0.0) * SURE
            await stack.until_ended(1, mark, within_s=_LIMIT_S, every_s=0.001, not_before_s=sure_s)
            whole.append(time.perf_counter() - began)
    steps = (await stack.take_marks())["steps"]
    return [
        *spread_ms("step", gaps(steps)),
        *spread_ms("run", whole),
        *meter.figures(_ALONE_RUNS * _ALONE_STEPS),
    ]


async def many_runs(stack: BenchStack) -> list[Figure]:
    """W2: 2,000 runs of 5 steps, each started by a request of its own, until the last one's end is committed."""
    await warm_up(stack)
    mark = await stack.mark()
    async with PostgresWork(stack.database) as work:
        with Meter(stack.pids) as meter:
            await in_flight(_RUNS, _AT_ONCE, lambda _: stack.start("chain", {"steps": _STEPS}))
            started_s = time.perf_counter() - meter.began
            await stack.until_ended(_RUNS, mark, within_s=_LIMIT_S)
    return [
        Figure("steps_per_s", _RUNS * _STEPS / meter.wall_s, "1/s"),
        Figure("runs_per_s", _RUNS / meter.wall_s, "1/s"),
        Figure("started_s", started_s, "s"),
        *work.figures(_RUNS * _STEPS),
        *meter.figures(_RUNS * _STEPS),
    ]


async def long_run(stack: BenchStack) -> list[Figure]:
    """The growth of state: one run of 2,000 steps, without checkpoint and, over HTTP, with it.

    Linear growth is a last quarter that lasts as long as the first.
    """
    await warm_up(stack)
    found = labelled(await _long_run(stack, "chain"), mode="plain")
    if stack.transport != "http":
        return found
    return found + labelled(await _long_run(stack, "checkpointed"), mode="checkpoint")


async def _long_run(stack: BenchStack, workflow: str) -> list[Figure]:
    mark = await stack.mark()
    with Meter(stack.pids) as meter:
        await stack.start(workflow, {"steps": _LONG_STEPS})
        await stack.until_ended(1, mark, within_s=_LIMIT_S)
    times = sorted(at for _, _, at in (await stack.take_marks())["steps"])
    quarter = len(times) // 4
    first, last = times[quarter] - times[0], times[-1] - times[-1 - quarter]
    return [
        Figure("total_s", meter.wall_s, "s"),
        Figure("last_to_first_quarter", last / first, "x"),
        *meter.figures(_LONG_STEPS),
    ]


def gaps(steps: Iterable[tuple[str, int, float]]) -> list[float]:
    """Seconds from each body of a run to the next one."""
    of_run: dict[str, list[float]] = defaultdict(list)
    for run, _, at in steps:
        of_run[run].append(at)
    return [later - earlier for times in of_run.values() for earlier, later in pairwise(sorted(times))]
