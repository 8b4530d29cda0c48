"""W4 and W6: how late sleepers wake, and what sleeping costs."""

from __future__ import annotations

import asyncio

from tests.bench.figures import Figure, labelled, spread_ms
from tests.bench.processes import Meter, memory_mb
from tests.bench.stack import SERVICES, BenchStack
from tests.bench.workloads.load import in_flight
from tests.bench.workloads.steps import warm_up

_SLEEPS = 1_000
_SLEEP_S = 2
_AT_ONCE = 64
_LONG_SLEEP_S = 24 * 3600
_BATCH = 100
_BATCHES_AT_ONCE = 4
_SETTLE_S = 5.0
_WINDOW_S = 20.0
_LIMIT_S = 120.0
_FILL_S = 600.0


async def sleeps(stack: BenchStack) -> list[Figure]:
    """W4: 1,000 runs sleep 2 s. How late each goes on is measured in the function, from the start of its body."""
    await warm_up(stack)
    return await _sleep_short(stack)


async def sleepers(stack: BenchStack, *, count: int) -> list[Figure]:
    """W6: what many runs that sleep cost, in CPU over 20 s and in memory; then W4 beside them."""
    await warm_up(stack)
    empty = memory_mb(stack.pids())
    batch = [{"name": "bench.sleep", "data": {"s": _LONG_SLEEP_S}}] * _BATCH
    with Meter(stack.pids) as filling:
        await in_flight(count // _BATCH, _BATCHES_AT_ONCE, lambda _: stack.send(batch))
        await stack.until_resting("s", count, within_s=_FILL_S)
    await asyncio.sleep(_SETTLE_S)
    with Meter(stack.pids) as meter:
        await asyncio.sleep(_WINDOW_S)
    found = [
        Figure("cpu_pct", meter.percent({*SERVICES, "postgres"}), "%"),
        *(Figure("cpu_pct", meter.percent({duty}), "%", {"process": duty}) for duty in empty),
        Figure("fill_s", filling.wall_s, "s"),
    ]
    for duty, held in memory_mb(stack.pids()).items():
        if duty in SERVICES:
            found.append(Figure("memory_x", held / empty[duty], "x empty", {"process": duty}))
        found.append(Figure("pss_mb", held, "MiB", {"process": duty}))
    found = labelled(found, asleep=count)
    return found + labelled(await _sleep_short(stack), asleep=count)


async def _sleep_short(stack: BenchStack) -> list[Figure]:
    mark = await stack.mark()
    with Meter(stack.pids) as meter:
        await in_flight(_SLEEPS, _AT_ONCE, lambda _: stack.start("sleeper", {"s": _SLEEP_S}))
        await stack.until_ended(_SLEEPS, mark, within_s=_LIMIT_S)
    late = (await stack.take_marks())["late"]
    return [*spread_ms("late", late), *meter.figures(_SLEEPS)]
