"""W8: a parent with many children."""

from __future__ import annotations

import time

from tests.bench.figures import Figure, spread_ms
from tests.bench.processes import Meter
from tests.bench.stack import BenchStack
from tests.bench.workloads.steps import SURE, warm_up

_CHILDREN = 200
_TIMES = 5
_LIMIT_S = 60.0


async def parent_and_children(stack: BenchStack) -> list[Figure]:
    """W8: a run that gathers 200 invokes of a workflow with one step, five times, until its end is committed."""
    await warm_up(stack)
    whole: list[float] = []
    with Meter(stack.pids) as meter:
        for _ in range(_TIMES):
            mark, began = await stack.mark(), time.perf_counter()
            await stack.start("parent", {"children": _CHILDREN})
            sure_s = min(whole, default=0.0) * SURE
            await stack.until_ended(_CHILDREN + 1, mark, within_s=_LIMIT_S, every_s=0.002, not_before_s=sure_s)
            whole.append(time.perf_counter() - began)
    found = spread_ms("whole", whole, percents=(50,))
    return [
        *(Figure(each.metric.removeprefix("whole_"), each.value, each.unit) for each in found),
        *meter.figures(_CHILDREN * _TIMES),
    ]
