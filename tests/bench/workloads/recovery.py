"""W7: all four services are killed in the middle of the work."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress

from tests.bench.child import NotReady, until
from tests.bench.figures import Figure
from tests.bench.stack import SERVICES, BenchStack
from tests.bench.workloads.steps import warm_up

_RUNS = 500
_STEPS = 5
_BATCH = 100
_KILL_AT = 1_000
_LIMIT_S = 60.0
_ANSWERED_S = 0.05
# After a start of Postgres the scheduler gives owners some time before it calls them dead. Here it is not Postgres that
# has started anew.
_SETTLED_S = 15


async def killed_services(stack: BenchStack) -> list[Figure]:
    """W7: kill -9 of gateway, ingest, scheduler and executor among 500 runs of 5 steps; the supervisor restarts them.

    `recovery_s` lasts from the kill until the last end is committed. A step is repeated when its body ran again;
    `in_flight` are the bodies that had run and whose results were not committed when the services were gone.
    """
    await warm_up(stack)
    await until(lambda: _is_settled(stack), within_s=_LIMIT_S, what="Postgres has run for a while", every_s=0.1)
    mark = await stack.mark()
    batch = [{"name": "bench.chain", "data": {"steps": _STEPS}}] * _BATCH
    for _ in range(_RUNS // _BATCH):
        await stack.send(batch)
    await until(lambda: _reached(stack, _KILL_AT), within_s=_LIMIT_S, what="steps to kill among", every_s=0.002)
    old = {pid for service in SERVICES for pid in stack.pids()[service]}
    stack.signal_services(signal.SIGKILL)
    killed = time.perf_counter()
    executed, committed = await _come_to_rest(stack), await stack.steps_since(mark)
    await until(lambda: _replaced(stack, old), within_s=_LIMIT_S, what="the services run again")
    restarted = time.perf_counter()
    # What is missing then is a figure: `lost`.
    with suppress(NotReady):
        await stack.until_ended(_RUNS, mark, within_s=_LIMIT_S)
    done = time.perf_counter()
    bodies = [(run, place) for run, place, _ in (await stack.take_marks())["steps"]]
    in_flight, repeated = executed - committed, len(bodies) - len(set(bodies))
    return [
        Figure("recovery_s", done - killed, "s"),
        Figure("restart_s", restarted - killed, "s"),
        Figure("lost", _RUNS - await stack.ended_since(mark), "runs"),
        Figure("repeated_steps", repeated, "steps"),
        Figure("in_flight", in_flight, "steps"),
        Figure("repeated_beyond", max(0, repeated - in_flight), "steps"),
        Figure("missing_steps", _RUNS * _STEPS - len(set(bodies)), "steps"),
        Figure("committed_at_kill", committed, "steps"),
    ]


async def _is_settled(stack: BenchStack) -> bool:
    return bool(
        await stack.database.fetchval(
            "select clock_timestamp() > pg_postmaster_start_time() + $1 * interval '1 second'", _SETTLED_S
        )
    )


async def _reached(stack: BenchStack, steps: int) -> bool:
    return await stack.steps_executed() >= steps


async def _come_to_rest(stack: BenchStack) -> int:
    """Bodies executed, once those that had been asked for are: nothing new for a while."""
    before = -1
    while (executed := await stack.steps_executed()) > before:
        before = executed
        await asyncio.sleep(_ANSWERED_S)
    return executed


async def _replaced(stack: BenchStack, old: set[int]) -> bool:
    pids = stack.pids()
    return all(set(pids.get(service, ())) - old for service in SERVICES)
