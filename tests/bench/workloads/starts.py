"""W3: how many starts are made durable, while nothing executes them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.figures import Figure, labelled
from tests.bench.processes import Meter
from tests.bench.stack import BenchStack
from tests.bench.workloads.load import in_flight
from tests.bench.workloads.steps import warm_up

_STARTS = 5_000
_AT_ONCE = 64
_BATCH = 100
_BATCHES_AT_ONCE = 8
_LIMIT_S = 120.0


async def starts(stack: BenchStack) -> list[Figure]:
    """W3: 5,000 starts, one a request, and then as events, 100 a request. The executor stands still meanwhile."""
    await warm_up(stack)
    found = []
    with nothing_executes(stack), Meter(stack.pids) as meter:
        await in_flight(_STARTS, _AT_ONCE, lambda _: stack.start("accept", {"k": 5}))
    found += _figures("single", meter)
    await stack.until_idle(within_s=_LIMIT_S)
    batch = [{"name": "bench.accept", "data": {"k": 5}}] * _BATCH
    with nothing_executes(stack), Meter(stack.pids) as meter:
        await in_flight(_STARTS // _BATCH, _BATCHES_AT_ONCE, lambda _: stack.send(batch))
    found += _figures("batch", meter)
    await stack.until_idle(within_s=_LIMIT_S)
    return found


@contextmanager
def nothing_executes(stack: BenchStack) -> Iterator[None]:
    """The executor is frozen during the block."""
    stack.signal_services(signal.SIGSTOP, ["executor"])
    try:
        yield
    finally:
        stack.signal_services(signal.SIGCONT, ["executor"])


def _figures(mode: str, meter: Meter) -> list[Figure]:
    found = [Figure("starts_per_s", _STARTS / meter.wall_s, "1/s"), *meter.figures(_STARTS)]
    return labelled(found, mode=mode)
