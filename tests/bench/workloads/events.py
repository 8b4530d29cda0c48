"""W5: events that resume waits."""

from __future__ import annotations

import time

from tests.bench.figures import Figure, labelled, spread_ms
from tests.bench.processes import Meter
from tests.bench.stack import BenchStack
from tests.bench.workloads.load import in_flight
from tests.bench.workloads.steps import warm_up

_WAITS = 1_000
_BURST = 900
_AT_ONCE = 100
_BATCH = 100
_BATCHES_AT_ONCE = 4
_LIMIT_S = 120.0
# Of the fastest so far: before that nobody looks whether the next one has ended.
_SURE = 0.8


async def events(stack: BenchStack) -> list[Figure]:
    """W5: 900 events at once, one a request, then 100 alone, each to its own wait; then 900 in batches of 100.

    Until the ends of the resumed runs are committed.
    """
    await warm_up(stack)
    mark = await stack.mark()
    runs = await _wait(stack, "single")
    with Meter(stack.pids) as meter:
        await in_flight(_BURST, _AT_ONCE, lambda number: stack.send([_event("single", number)]))
        await stack.until_ended(_BURST, mark, within_s=_LIMIT_S, every_s=0.005)
    found = labelled([Figure("events_per_s", _BURST / meter.wall_s, "1/s"), *meter.figures(_BURST)], mode="single")

    alone: list[float] = []
    for number in range(_BURST, _WAITS):
        sure_s = min(alone, default=0.0) * _SURE
        began = time.perf_counter()
        await stack.send([_event("single", number)])
        left_s = began + sure_s - time.perf_counter()
        await stack.until_run_ended(runs[number], within_s=_LIMIT_S, not_before_s=max(0.0, left_s))
        alone.append(time.perf_counter() - began)
    found += spread_ms("alone", alone)

    mark = await stack.mark()
    await _wait(stack, "batch")
    with Meter(stack.pids) as meter:
        await in_flight(_BURST // _BATCH, _BATCHES_AT_ONCE, lambda batch: stack.send(_events("batch", batch)))
        await stack.until_ended(_BURST, mark, within_s=_LIMIT_S, every_s=0.005)
    return [
        *found,
        *labelled([Figure("events_per_s", _BURST / meter.wall_s, "1/s"), *meter.figures(_BURST)], mode="batch"),
    ]


async def _wait(stack: BenchStack, mode: str) -> list[str]:
    """A thousand runs wait, each for a key of its own; which they are, in the order of their keys."""
    waits = [{"name": "bench.wait", "data": {"key": f"{mode}{number}"}} for number in range(_WAITS)]
    runs = []
    for first in range(0, _WAITS, _BATCH):
        runs += await stack.send(waits[first : first + _BATCH])
    await stack.until_resting("w", _WAITS, within_s=_LIMIT_S)
    return runs


def _event(mode: str, number: int) -> dict[str, object]:
    return {"name": "bench.go", "data": {"key": f"{mode}{number}"}}


def _events(mode: str, batch: int) -> list[dict[str, object]]:
    return [_event(mode, number) for number in range(batch * _BATCH, (batch + 1) * _BATCH)]
