"""Strain: many tenants, a long backlog, big items, a slow Postgres, a frozen executor; what others feel of it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

import asyncpg

from services.core.runtime.ids import ulid_uuid
from services.core.runtime.python_child import python_command, python_environ
from services.embedded.home import Home
from tests.bench.child import free_port, running, until
from tests.bench.figures import Figure, spread_ms
from tests.bench.lean_client import CallFailed, LeanClient
from tests.bench.processes import Meter
from tests.bench.stack import BenchStack
from tests.bench.tenancy import WORKFLOWS, new_tenants
from tests.bench.transport import register, start_function
from tests.bench.workloads.load import in_flight
from tests.bench.workloads.starts import nothing_executes
from tests.bench.workloads.steps import warm_up

_TENANTS = 200
_BATCH = [{"name": "bench.accept", "data": {"k": 5}}] * 100
_BATCHES = 400
_BATCHES_AT_ONCE = 256
_BACKLOG = 50_000
_PROBES = 50
_BIG = "x" * (1024 * 1024 - 1024)
_BIG_AT_ONCE = 8
_DISTURBERS = 4
_DISTURBANCE = "select count(*) from (select md5(i::text) as m from generate_series(1, 300000) i order by m) x"
_RUNS = 1_000
_STEPS = 5
_LIMIT_S = 120.0


async def many_tenants(stack: BenchStack) -> list[Figure]:
    """40,000 starts of 200 tenants, 100 a request, 256 requests in flight; how long requests take, how many fail."""
    tenants = await new_tenants(stack, _TENANTS)
    took: list[float] = []
    refused = 0

    async def send(number: int) -> None:
        nonlocal refused
        began = time.perf_counter()
        try:
            await tenants[number % _TENANTS].call("POST", "/api/events", _BATCH)
        except CallFailed:
            refused += 1
        else:
            took.append(time.perf_counter() - began)

    with nothing_executes(stack):
        # The first request of each tenant fills caches.
        await in_flight(_TENANTS, 4, send)
        took.clear()
        with Meter(stack.pids) as meter:
            await in_flight(_BATCHES, _BATCHES_AT_ONCE, send)
        starts = len(took) * len(_BATCH)
    return [
        Figure("starts_per_s", starts / meter.wall_s, "1/s"),
        Figure("refused", refused, "requests"),
        *spread_ms("request", took),
        *meter.figures(starts),
    ]


async def backlog(stack: BenchStack) -> list[Figure]:
    """One tenant has 50,000 runs queued; how long a run of another takes from its start to its end, beside them."""
    (other,) = await new_tenants(stack, 1)
    async with AsyncExitStack() as closing:
        function = await start_function(other, stack.home, closing)
        await register(other, function.port)
        await _probe(other, stack)
        quiet = await _probe(other, stack)
        with nothing_executes(stack):
            await in_flight(_BACKLOG // len(_BATCH), 4, lambda _: stack.send(_BATCH))
        with Meter(stack.pids) as meter:
            beside = await _probe(other, stack)
    left = await stack.database.fetchval("select count(*) from rt.live where st in ('q', 'r')")
    return [
        *spread_ms("alone", quiet),
        *spread_ms("beside", beside),
        Figure("backlog_left", left, "runs"),
        *meter.figures(_PROBES),
    ]


async def big_items(stack: BenchStack) -> list[Figure]:
    """Starts of 1 MiB, eight at once, beside small ones, one after another: how long a small one takes; memory."""
    await warm_up(stack)
    with nothing_executes(stack):
        quiet = await _small_starts(stack)
        async with _meanwhile(lambda: stack.start("accept", {"text": _BIG}), _BIG_AT_ONCE):
            with Meter(stack.pids) as meter:
                beside = await _small_starts(stack)
    return [*spread_ms("alone", quiet), *spread_ms("beside", beside), *meter.figures()]


async def slow_postgres(stack: BenchStack) -> list[Figure]:
    """1,000 runs of 5 steps while four connections keep Postgres busy with sorting."""
    await warm_up(stack)
    pool = await asyncpg.create_pool(Home(stack.home).recall("stack.json")["database_url"], min_size=_DISTURBERS)
    try:
        async with _meanwhile(lambda: pool.fetchval(_DISTURBANCE), _DISTURBERS):
            meter = await _chains(stack)
    finally:
        await pool.close()
    return [Figure("steps_per_s", _RUNS * _STEPS / meter.wall_s, "1/s"), *meter.figures(_RUNS * _STEPS)]


async def frozen_executor(stack: BenchStack) -> list[Figure]:
    """1,000 runs of 5 steps over two executors, one of which is frozen in the middle and stays so.

    `most_s` is when 70 % have ended, `done_s` when all have: what the frozen one holds waits for its lease to expire.
    """
    await warm_up(stack)
    home = Home(stack.home)
    environ = {
        **python_environ(_environ_of(stack.pids()["executor"][0])),
        "RUNR_EXECUTOR_ADDR": f"127.0.0.1:{free_port()}",
        "RUNR_HEALTH_ADDR": f"127.0.0.1:{free_port()}",
    }
    command = python_command("services.cli.main", "serve", "executor")
    async with running(command, environ=environ, log=home.path / "executor-2.log") as second:
        async with LeanClient(f"http://{environ['RUNR_HEALTH_ADDR']}") as health:
            await until(lambda: _answers(health), within_s=_LIMIT_S, what="the second executor is ready", every_s=0.1)
        mark, began = await stack.mark(), time.perf_counter()
        await in_flight(_RUNS, 64, lambda _: stack.start("chain", {"steps": _STEPS}))
        second.send_signal(signal.SIGSTOP)
        try:
            await stack.until_ended(_RUNS * 7 // 10, mark, within_s=_LIMIT_S)
            most_s = time.perf_counter() - began
            await stack.until_ended(_RUNS, mark, within_s=_LIMIT_S)
        finally:
            second.send_signal(signal.SIGCONT)
    return [Figure("most_s", most_s, "s"), Figure("done_s", time.perf_counter() - began, "s")]


async def _probe(client: LeanClient, stack: BenchStack) -> list[float]:
    """Runs of one step of a caller, one at a time: seconds from start to committed end."""
    took: list[float] = []
    for _ in range(_PROBES):
        began = time.perf_counter()
        started = await client.call("POST", f"{WORKFLOWS}/chain/runs", {"data": {"steps": 1}})
        run = ulid_uuid(started["id"])

        async def ended(run: UUID = run) -> bool:
            return bool(await stack.database.fetchval("select exists (select from rt.ends where run = $1)", run))

        await until(ended, within_s=_LIMIT_S, what="the run has ended", every_s=0.002)
        took.append(time.perf_counter() - began)
    return took


async def _small_starts(stack: BenchStack) -> list[float]:
    took = []
    for _ in range(4 * _PROBES):
        began = time.perf_counter()
        await stack.start("accept", {"k": 5})
        took.append(time.perf_counter() - began)
    return took


async def _chains(stack: BenchStack) -> Meter:
    mark = await stack.mark()
    with Meter(stack.pids) as meter:
        await in_flight(_RUNS, 64, lambda _: stack.start("chain", {"steps": _STEPS}))
        await stack.until_ended(_RUNS, mark, within_s=_LIMIT_S)
    return meter


@asynccontextmanager
async def _meanwhile(call: Callable[[], Awaitable[object]], at_once: int) -> AsyncIterator[None]:
    """Calls again and again during the block, so many at a time."""

    async def work() -> None:
        while True:
            await call()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work()) for _ in range(at_once)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def _environ_of(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


async def _answers(health: LeanClient) -> bool:
    try:
        await health.call("GET", "/readyz")
    except CallFailed:
        return False
    return True


STRAIN: Mapping[str, tuple[str, Callable[[BenchStack], Awaitable[list[Figure]]]]] = {
    "tenants": ("200 tenants at once", many_tenants),
    "backlog": ("a run beside 50,000 queued ones", backlog),
    "big": ("small starts beside big ones", big_items),
    "slow-postgres": ("steps while Postgres is busy", slow_postgres),
    "frozen": ("one of two executors is frozen", frozen_executor),
}
