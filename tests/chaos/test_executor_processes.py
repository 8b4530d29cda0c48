"""`runr serve executor --processes 2`: two executors under one parent, killed, drained, and left alone."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import psutil
import pytest
from runr_workflows import Context, Step, Workflows

from services.core.runtime.python_child import python_command, python_environ
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from tests.support import invariants
from tests.support.metrics import scrape
from tests.support.postgres import run_apart
from tests.support.rest import Rest
from tests.support.stack import Servers, Stack
from tests.support.workflow_app import Bodies, serving

COMMAND = python_command("services.cli.main", "serve", "executor", "--processes", "2")
RUNS = 40
SLOTS = 24
"""Of each process: fewer than runs, so that both hold some."""

# As of one executor: a beat may be 2 s old before a free lock counts, and the scheduler looks each second (C19).
RECOVERY_S = 15.0
# A child's own grace for a parent that is gone, and this machine's.
ORPHANED_S = 15.0

_HELD = "select count(distinct owner) from rt.live where owner is not null"
_NODES = "select array_agg(node order by node) from rt.owner where kind = 'executor' and not dead"


@pytest.fixture(scope="module")
def stack(servers: Servers) -> Iterator[Stack]:
    """A stack whose executor is two processes."""
    settings = {"RUNR_EXECUTOR_SLOTS": str(SLOTS), "WORKFLOWS_LEASE_TTL": "30s", "WORKFLOWS_HEARTBEAT": "500ms"}
    made = Stack(
        servers, settings=settings, commands={"executor": COMMAND}, own={"executor": {"RUNR_LOG_LEVEL": "info"}}
    )
    run_apart(made.__aenter__())
    try:
        yield made
        run_apart(invariants.check(made.database_url))
    finally:
        run_apart(made.close())


@pytest.fixture
async def rest(stack: Stack) -> AsyncIterator[Rest]:
    """A client in a new tenant."""
    await stack.revive()
    async with stack.tenant() as client:
        yield client


def working(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("work", retries=5)
    def work(ctx: Context, step: Step) -> str:
        for name in ("one", "two", "three"):
            step.run(name, bodies.record, ctx.run_id, name)
        return "done"


def processes_of(stack: Stack) -> dict[int, psutil.Process]:
    """The children by their slots."""
    found = psutil.Process(stack.children["executor"].pid).children()
    return {int(process.environ()["RUNR_PROCESS_SLOT"]): process for process in found}


async def readiness(stack: Stack) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{stack.children['executor'].health}/readyz") as answer,
    ):
        return answer.status, await answer.json()


async def both_hold(stack: Stack, rest: Rest) -> None:
    await rest.until(lambda: stack.value(_HELD), lambda owners: owners == 2)


async def ended(processes: list[psutil.Process], within_s: float) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, within_s)
    assert not alive


def listening(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}


async def test_each_process_is_an_executor_of_its_own(stack: Stack, rest: Rest) -> None:
    children = processes_of(stack)
    assert set(children) == {0, 1}
    port = int(stack.address("executor").rsplit(":")[-1])
    assert all(port in listening(process) for process in children.values())
    nodes = [node.split("/")[1:] for node in await stack.value(_NODES)]
    assert nodes == [["0", str(children[0].pid)], ["1", str(children[1].pid)]]
    status, report = await readiness(stack)
    assert (status, set(report["checks"])) == (200, {"process", "executor-0", "executor-1"})
    lines = [json.loads(line) for line in stack.children["executor"].log_lines()]
    assert {line.get("process") for line in lines if line["message"] == "holding runs"} == {0, 1}


async def test_the_metrics_of_all_processes_are_at_one_address(stack: Stack, rest: Rest) -> None:
    processes = {"0", "1", "parent"}
    await rest.until(
        lambda: scrape(stack), lambda told: told.values("process_cpu_seconds_total", "process") == processes
    )
    async with serving(rest, working):
        runs = await asyncio.gather(*(rest.start("work") for _ in range(RUNS)))
        await asyncio.gather(*(rest.completed(run) for run in runs))
        told = await scrape(stack)
    assert told.values("runr_executor_slots_taken", "process") == {"0", "1"}
    assert told.sum("runr_executor_slots", service="executor") == 2 * SLOTS
    assert told.sum("runr_executor_processes", process="parent") == 2
    of_each = [told.sum("runr_runs_ended_total", process=process, status="completed") for process in ("0", "1")]
    assert sum(of_each) >= RUNS


async def test_runs_of_a_killed_process_move_on_and_it_comes_back(stack: Stack, rest: Rest) -> None:
    async with serving(rest, working) as bodies:
        bodies.hold("two")
        runs = await asyncio.gather(*(rest.start("work") for _ in range(RUNS)))
        await bodies.until(lambda done: sum(body.step == "two" for body in done) == RUNS)
        await both_hold(stack, rest)
        before = processes_of(stack)
        before[0].kill()
        killed = time.monotonic()
        status, report = await readiness(stack)
        await ended([before[0]], 5)
        bodies.let_go("two")
        assert await asyncio.gather(*(rest.completed(run) for run in runs)) == ["done"] * RUNS
        took_s = time.monotonic() - killed
        await stack.children["executor"].ready()
        after = processes_of(stack)
        lost = [run for run in runs if (await rest.run(run))["attempts"]]
        repeated = [run for run in runs if bodies.of(run) != {"one": 1, "two": 1, "three": 1}]
    assert took_s < RECOVERY_S
    assert (status, report["checks"]["executor-1"]) == (503, "ok")
    assert after[1].pid == before[1].pid
    assert after[0].pid != before[0].pid
    assert 0 < len(lost) <= SLOTS
    assert set(repeated) <= set(lost)


async def test_a_worker_of_one_process_serves_the_runs_of_all_and_finds_the_other(stack: Stack) -> None:
    await stack.revive()
    async with stack.tenant("stream") as rest, serving(rest, working) as bodies:
        first = [await rest.start("work") for _ in range(RUNS)]
        assert await asyncio.gather(*(rest.completed(run) for run in first)) == ["done"] * RUNS
        bodies.hold("two")
        run = await rest.start("work")
        await bodies.reached(run, "two")
        node = await stack.value("select o.node from rt.live l join rt.owner o on o.id = l.owner")
        processes_of(stack)[int(node.split("/")[1])].kill()
        bodies.let_go()
        assert await rest.completed(run) == "done"
        await stack.children["executor"].ready()
    assert bodies.of(run) == {"one": 1, "two": 1, "three": 1}
    assert all(bodies.of(each) == {"one": 1, "two": 1, "three": 1} for each in first)


async def test_a_signal_drains_both_and_counts_no_attempt(stack: Stack, rest: Rest) -> None:
    executor = stack.children["executor"]
    async with serving(rest, working) as bodies:
        bodies.hold("two")
        runs = await asyncio.gather(*(rest.start("work") for _ in range(RUNS)))
        await bodies.until(lambda done: sum(body.step == "two" for body in done) == RUNS)
        await both_hold(stack, rest)
        children = list(processes_of(stack).values())
        executor.kill(signal.SIGTERM)
        await rest.until(lambda: readiness(stack), lambda answer: answer[1]["checks"]["process"] == "draining")
        bodies.let_go("two")
        assert await executor.ended() == EXIT_OK
        await ended(children, 0)
        between = [(await rest.run(run))["status"] for run in runs]
        await stack.start("executor")
        assert await asyncio.gather(*(rest.completed(run) for run in runs)) == ["done"] * RUNS
        found = [await rest.run(run) for run in runs]
    assert set(between) <= {"queued"}
    assert [run["attempts"] for run in found] == [[]] * RUNS
    assert all(bodies.of(run) == {"one": 1, "two": 1, "three": 1} for run in runs)


async def test_a_second_signal_cuts_the_drain_off(stack: Stack, rest: Rest) -> None:
    executor = stack.children["executor"]
    async with serving(rest, working) as bodies:
        bodies.hold("two")
        run = await rest.start("work")
        await bodies.reached(run, "two")
        executor.kill(signal.SIGTERM)
        await rest.until(lambda: readiness(stack), lambda answer: answer[1]["checks"]["process"] == "draining")
        executor.kill(signal.SIGTERM)
        assert await executor.ended(timeout_s=10) == EXIT_FAILED
        bodies.let_go()
        await stack.start("executor")
        assert await rest.completed(run) == "done"


async def test_the_death_of_the_parent_ends_the_children(stack: Stack, rest: Rest) -> None:
    async with serving(rest, working):
        children = list(processes_of(stack).values())
        await stack.kill("executor")
        await stack.start("executor")  # it waits for the address, which the orphans have as long as they drain
        await ended(children, ORPHANED_S)
        assert not {process.pid for process in children} & {each.pid for each in processes_of(stack).values()}
        assert await rest.completed(await rest.start("work")) == "done"


@pytest.mark.parametrize(
    ("arguments", "settings", "told"),
    [
        (["gateway", "--processes", "2"], {}, "--processes is for"),
        (["executor", "--processes", "0"], {}, "argument --processes"),
        (["executor", "--processes", "2"], {"WORKFLOWS_LEASE_TTL": "soon"}, "WORKFLOWS_LEASE_TTL"),
        (["executor", "--processes", "2"], {"RUNR_GRACE": "soon"}, "RUNR_GRACE"),
    ],
)
async def test_what_cannot_work_ends_at_once(
    stack: Stack, arguments: list[str], settings: dict[str, str], told: str
) -> None:
    code, errors = await run_to_its_end(stack, arguments, settings)
    assert code == EXIT_USAGE
    assert told in errors


async def test_an_executor_alone_does_not_join_the_others(stack: Stack) -> None:
    await stack.revive()
    code, errors = await run_to_its_end(stack, ["executor"], {"RUNR_GRPC_ADDR": stack.address("executor")})
    assert (code, "cannot listen" in errors) == (EXIT_FAILED, True)


async def run_to_its_end(stack: Stack, arguments: list[str], settings: dict[str, str]) -> tuple[int, str]:
    """A command with the stack's settings, on addresses of its own; its exit code and what it wrote."""
    own = {"RUNR_HEALTH_ADDR": "127.0.0.1:0", "RUNR_GRPC_ADDR": f"127.0.0.1:{stack.home.port('other')}"}
    environ = {**stack.environ, **own, **settings}
    process = await asyncio.create_subprocess_exec(
        *python_command("services.cli.main", "serve", *arguments),
        env=python_environ(environ),
        stderr=subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 40)
    assert process.returncode is not None
    return process.returncode, errors.decode()
