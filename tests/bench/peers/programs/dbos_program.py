"""The workloads, as DBOS (Python) does them: `dbos_program.py WORKLOAD`, in the peers' environment.

Caller and worker are this one process, except in W3 and W7, which put workflows into a queue. The database is in
PEER_DATABASE, the pid of its server in PEER_DATABASE_PID, the number of sleepers of W6 in PEER_ASLEEP. The last line of
stdout is a JSON list of figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg  # type: ignore[import-not-found]  # only in the peers' environment
from dbos import DBOS, DBOSClient, DBOSConfig  # type: ignore[import-not-found]

from tests.bench.figures import Figure, labelled, spread_ms
from tests.bench.processes import Meter, Pids, descendants
from tests.bench.workloads.load import in_flight

_AT_ONCE = 16
"""Its best on two cores: more in flight is slower."""
_POOL = 20
_LIMIT_S = 120.0
_PLAIN = {"mode": "plain"}

_url = os.environ["PEER_DATABASE"]
_step_log = os.environ.get("STEP_LOG")
_steps = os.open(_step_log, os.O_CREAT | os.O_APPEND | os.O_WRONLY) if _step_log else None
_late: list[float] = []
_waiting: list[str] = []


async def _step(place: int) -> dict[str, int]:
    if _steps is not None:
        os.write(_steps, f"{DBOS.workflow_id} {place}\n".encode())
    return {"i": place}


step = DBOS.step(name="step")(_step)


async def _chain(steps: int) -> list[float]:
    took = []
    for place in range(steps):
        began = time.perf_counter()
        await step(place)
        took.append(time.perf_counter() - began)
    return took


async def _sleeper(seconds: int) -> None:
    began = time.time()
    await DBOS.sleep_async(seconds)
    _late.append(time.time() - began - seconds)


async def _waiter() -> Any:
    _waiting.append(DBOS.workflow_id)
    return await DBOS.recv_async("go", timeout_seconds=600)


async def _child(place: int) -> Any:
    return await step(place)


async def _parent(children: int) -> int:
    handles = [await DBOS.start_workflow_async(child, place) for place in range(children)]
    return len([await handle.get_result() for handle in handles])


chain = DBOS.workflow(name="chain")(_chain)
sleeper = DBOS.workflow(name="sleeper")(_sleeper)
waiter = DBOS.workflow(name="waiter")(_waiter)
child = DBOS.workflow(name="child")(_child)
parent = DBOS.workflow(name="parent")(_parent)


def launch() -> None:
    """Starts DBOS in this process, making its schema where it is missing."""
    DBOS(config=DBOSConfig(name="bench", system_database_url=_url, sys_db_pool_size=_POOL, log_level="ERROR"))
    DBOS.launch()


def pids() -> Pids:
    """This process, as `worker`, and the database."""
    return {"worker": [os.getpid()], "postgres": descendants(int(os.environ["PEER_DATABASE_PID"]))}


async def run_chain(steps: int) -> list[float]:
    """One workflow, to its end."""
    handle = await DBOS.start_workflow_async(chain, steps)
    took: list[float] = await handle.get_result()
    return took


async def one_run_alone() -> list[Figure]:
    """W1."""
    runs: list[float] = []
    steps: list[float] = []
    with Meter(pids) as meter:
        for _ in range(100):
            began = time.perf_counter()
            steps += await run_chain(10)
            runs.append(time.perf_counter() - began)
    return [*spread_ms("step", steps), *spread_ms("run", runs), *meter.figures(1_000)]


async def many_runs() -> list[Figure]:
    """W2."""
    with Meter(pids) as meter:
        await in_flight(2_000, _AT_ONCE, lambda _: run_chain(5))
    return [
        Figure("steps_per_s", 10_000 / meter.wall_s, "1/s"),
        Figure("runs_per_s", 2_000 / meter.wall_s, "1/s"),
        *meter.figures(10_000),
    ]


async def sleeps() -> list[Figure]:
    """W4."""
    with Meter(pids) as meter:
        await _all(1_000, sleeper, 2)
    return [*spread_ms("late", _late), *meter.figures(1_000)]


async def events() -> list[Figure]:
    """W5."""
    handles = [await DBOS.start_workflow_async(waiter) for _ in range(1_000)]
    while len(_waiting) < len(handles):
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)

    async def send(number: int) -> float:
        began = time.perf_counter()
        await DBOS.send_async(handles[number].workflow_id, {"x": number}, "go")
        await handles[number].get_result()
        return time.perf_counter() - began

    with Meter(pids) as meter:
        await in_flight(900, 100, send)
    alone = [await send(number) for number in range(900, 1_000)]
    burst = labelled([Figure("events_per_s", 900 / meter.wall_s, "1/s"), *meter.figures(900)], mode="single")
    return [*burst, *spread_ms("alone", alone)]


async def sleepers() -> list[Figure]:
    """W6."""
    asleep = int(os.environ["PEER_ASLEEP"])

    async def sleep(_: int) -> None:
        await DBOS.start_workflow_async(sleeper, 24 * 3600)

    await in_flight(asleep, 50, sleep)
    await asyncio.sleep(5)
    with Meter(pids) as meter:
        await asyncio.sleep(20)
    found = [Figure("cpu_pct", meter.percent({"worker", "postgres"}), "%"), *meter.figures()]
    return labelled(found, asleep=asleep)


async def parent_and_children() -> list[Figure]:
    """W8."""
    whole = []
    for _ in range(5):
        began = time.perf_counter()
        handle = await DBOS.start_workflow_async(parent, 200)
        await handle.get_result()
        whole.append(time.perf_counter() - began)
    return [Figure("p50_ms", spread_ms("whole", whole, percents=(50,))[0].value, "ms")]


async def long_run() -> list[Figure]:
    """The growth of state."""
    began = time.perf_counter()
    took = await run_chain(2_000)
    return [
        Figure("total_s", time.perf_counter() - began, "s", _PLAIN),
        Figure("last_to_first_quarter", sum(took[-500:]) / sum(took[:500]), "x", _PLAIN),
    ]


def starts() -> list[Figure]:
    """W3: put into a queue by 16 threads; nobody takes them out."""
    launch()
    DBOS.destroy()
    with Meter(pids) as meter:
        enqueue(5_000)
    return labelled([Figure("starts_per_s", 5_000 / meter.wall_s, "1/s"), *meter.figures(5_000)], mode="single")


def enqueue(total: int) -> None:
    """Puts workflows of five steps into the queue."""
    client = DBOSClient(system_database_url=_url, system_database_pool_size=_AT_ONCE)
    client.register_queue("q")
    numbers = iter(range(total))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(numbers, None) is None:
                    return
            client.enqueue({"workflow_name": "chain", "queue_name": "q"}, 5)

    threads = [threading.Thread(target=work) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def killed(step_log: Path) -> list[Figure]:
    """W7: the worker process is killed; the database stays."""
    launch()
    DBOS.destroy()
    worker = _worker(step_log)
    time.sleep(3)
    enqueue(500)
    while len(_lines(step_log)) < 1_000:
        time.sleep(0.005)
    os.killpg(worker.pid, signal.SIGKILL)
    began = time.perf_counter()
    worker.wait()
    worker = _worker(step_log)
    try:
        while _completed() < 500 and time.perf_counter() - began < _LIMIT_S:
            time.sleep(0.05)
        recovery_s = time.perf_counter() - began
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    bodies = _lines(step_log)
    return [
        Figure("recovery_s", recovery_s, "s"),
        Figure("lost", 500 - _completed(), "runs"),
        Figure("repeated_steps", len(bodies) - len(set(bodies)), "steps"),
        Figure("missing_steps", 2_500 - len(set(bodies)), "steps"),
    ]


async def work() -> None:
    """The worker of W7: takes workflows out of the queue until it is killed."""
    launch()
    await DBOS.register_queue_async("q")
    await asyncio.Event().wait()


async def in_process(workload: Callable[[], Awaitable[list[Figure]]]) -> list[Figure]:
    """A workload whose caller is the worker."""
    launch()
    await in_flight(30, 10, lambda _: run_chain(5))
    return await workload()


async def _all(total: int, workflow: Any, *arguments: Any) -> None:
    handles: list[Any] = []

    async def start(_: int) -> None:
        handles.append(await DBOS.start_workflow_async(workflow, *arguments))

    await in_flight(total, 50, start)
    for handle in handles:
        await handle.get_result()


def _worker(step_log: Path) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "STEP_LOG": str(step_log)}
    return subprocess.Popen([sys.executable, __file__, "worker"], env=environ, start_new_session=True)


def _completed() -> int:
    with psycopg.connect(_url, autocommit=True) as connection:
        found = connection.execute("select count(*) from dbos.workflow_status where status = 'SUCCESS'").fetchone()
    return int(found[0])


def _lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


IN_PROCESS = {
    "W1": one_run_alone,
    "W2": many_runs,
    "W4": sleeps,
    "W5": events,
    "W6": sleepers,
    "W8": parent_and_children,
    "growth": long_run,
}


def main(workload: str) -> None:
    """Measures one workload, or is the worker of W7."""
    if workload == "worker":
        asyncio.run(work())
        return
    if workload == "W3":
        figures = starts()
    elif workload == "W7":
        figures = killed(Path(os.environ["PEER_FOLDER"]) / "steps.log")
    else:
        figures = asyncio.run(in_process(IN_PROCESS[workload]))
    print(json.dumps([[each.metric, each.value, each.unit, dict(each.labels)] for each in figures]), flush=True)
    # Its threads would wait for sleepers.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
