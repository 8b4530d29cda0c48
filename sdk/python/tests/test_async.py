"""Async workflows: same answers as sync ones, steps in call order, and a clean end of every task."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, StepError, Workflows
from sdk.python.tests.engine import KEY, NOW, RUN_ID, FakeEngine, envelope, execute_request


def test_gathered_steps_run_one_after_another_in_call_order(wf: Workflows, engine: FakeEngine) -> None:
    bodies: list[str] = []

    async def body(name: str) -> str:
        bodies.append(f"{name} begins")
        await asyncio.sleep(0)
        bodies.append(f"{name} ends")
        return name

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[str]:
        return list(await asyncio.gather(*(step.run("part", body, name) for name in "abc")))

    run = engine.run("w")

    assert [step_id for _, step_id in run.kinds] == ["part", "part:1", "part:2"]
    assert bodies == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    assert run.output == ["a", "b", "c"]


def test_ids_are_given_in_call_order_even_if_awaited_in_another(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[int]:
        first = step.run("add", lambda: 1)
        second = step.run("add", lambda: 2)
        return [await second, await first]

    run = engine.run("w")

    assert [(op["id"], op["output"]) for op in run.ops[:2]] == [("add:1", 2), ("add", 1)]
    assert run.output == [2, 1]


def test_parallel_groups_of_sequential_steps(wf: Workflows, engine: FakeEngine) -> None:
    bodies: list[str] = []

    def body(name: str) -> str:
        bodies.append(name)
        return name

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[list[Any]]:
        async def group(name: str) -> list[Any]:
            one = await step.run(f"{name}1", body, f"{name}1")
            await step.sleep(f"{name}-nap", "1s")
            return [one, await step.run(f"{name}2", body, f"{name}2")]

        async with asyncio.TaskGroup() as tasks:
            groups = [tasks.create_task(group(name)) for name in "ab"]
        return [task.result() for task in groups]

    run = engine.run("w")

    assert sorted(bodies) == ["a1", "a2", "b1", "b2"]
    assert len(run.kinds) == 6
    assert run.output == [["a1", "a2"], ["b1", "b2"]]


def test_an_empty_group_returns_at_once(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        return list(await asyncio.gather(*[]))

    assert engine.execute("w") == {"op": "run_completed", "output": []}


def test_a_reported_step_in_a_group_ends_the_invocation_before_later_bodies(wf: Workflows, engine: FakeEngine) -> None:
    bodies: list[str] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.sleep("nap", "1h"), step.run("a", lambda: bodies.append("a")))

    assert engine.execute("w")["op"] == "sleep"
    assert bodies == []


def test_a_failed_sibling_does_not_lose_a_body_that_has_begun(wf: Workflows) -> None:
    engine = FakeEngine(wf.handle_request, retries=0)
    refunds: list[str] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        async def fail() -> None:
            raise RuntimeError("declined")

        async def slow() -> str:
            await asyncio.sleep(0.01)
            return "slow"

        try:
            await asyncio.gather(step.run("bad", fail), step.run("slow", slow))
        except StepError:
            await step.run("refund", lambda: refunds.append("refund"))
        return "compensated"

    run = engine.run("w")

    assert run.kinds == [("step_failed", "bad"), ("step_completed", "slow"), ("step_completed", "refund")]
    assert refunds == ["refund"]
    assert run.output == "compensated"


def test_a_workflow_that_returns_while_a_body_runs_waits_for_its_op(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        begun = asyncio.Event()

        async def body() -> str:
            begun.set()
            await asyncio.sleep(0.01)
            return "done"

        task = asyncio.create_task(step.run("background", body))
        if not ctx.is_replaying:
            await begun.wait()
        else:
            await task
        return "returned"

    run = engine.run("w")

    assert run.kinds == [("step_completed", "background")]
    assert run.output == "returned"


def test_a_timeout_of_user_code_around_a_body_leaves_the_step_undone(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            async with asyncio.timeout(0.01):
                await step.run("slow", asyncio.sleep, 60)
        except TimeoutError:
            await step.run("instead", lambda: None)

    assert engine.execute("w")["id"] == "instead"


def test_sync_functions_do_not_block_the_loop(wf: Workflows) -> None:
    meeting = threading.Barrier(2, timeout=5)

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("meet", meeting.wait)

    async def both() -> list[tuple[int, bytes]]:
        body = envelope(execute_request("w"))
        return list(await asyncio.gather(*(wf.handle_request_async(body, {}) for _ in range(2))))

    assert [status for status, _ in asyncio.run(both())] == [200, 200], "the bodies met, so they ran at once"


def test_every_way_to_give_an_async_function(wf: Workflows, engine: FakeEngine) -> None:
    class Callable:
        async def __call__(self, n: int) -> int:
            return n

    async def plain(n: int) -> int:
        return n

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[int]:
        return [
            await step.run("plain", plain, 1),
            await step.run("partial", functools.partial(plain, 2)),
            await step.run("object", Callable(), 3),
            await step.run("lambda", lambda: plain(4)),
            await step.options(retries=0).run("options", plain, 5),
        ]

    assert engine.run("w").output == [1, 2, 3, 4, 5]


def test_sync_workflows_run_beside_the_loop(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Any) -> str:
        return str(step.run("name", lambda: threading.current_thread().name))

    status, body = asyncio.run(wf.handle_request_async(envelope(execute_request("w")), {}))

    assert status == 200
    assert b"runr-step" in body


def test_concurrent_runs_share_no_counters(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.sleep(0.001)
        await step.run("a", asyncio.sleep, 0.001)

    async def many() -> list[tuple[int, bytes]]:
        body = envelope(execute_request("w"))
        return list(await asyncio.gather(*(wf.handle_request_async(body, {}) for _ in range(20))))

    answers = asyncio.run(many())

    assert all(b'"id":"a"' in body for _, body in answers)


def test_code_that_ignores_its_cancellation_delays_the_answer_only_for_a_moment(
    wf: Workflows, engine: FakeEngine
) -> None:
    answered, ended = threading.Event(), threading.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            await step.run("a", lambda: 1)
        finally:
            while not answered.is_set():
                await asyncio.sleep(0.005)
            ended.set()

    started = time.monotonic()
    op = engine.execute("w")

    assert op["id"] == "a"
    assert not ended.is_set(), "the answer did not wait for the clean-up"
    assert time.monotonic() - started < 5
    answered.set()
    assert ended.wait(5), "and the clean-up was not cut off"


def test_code_is_cancelled_once_and_may_wait_in_its_clean_up(wf: Workflows, engine: FakeEngine) -> None:
    told: list[object] = []
    answered, ended = threading.Event(), threading.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await step.run("a", lambda: 1)
        finally:
            told.append(task.cancelling())
            while not answered.is_set():
                await asyncio.sleep(0.005)
            told.append(task.cancelling())
            ended.set()

    assert engine.execute("w")["id"] == "a"
    answered.set()
    assert ended.wait(30)
    assert told == [1, 1]


def test_a_stored_call_is_awaited_once_as_any_coroutine(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[object]:
        call = step.run("a", lambda: 1)
        first = await call
        try:
            return [first, await call]
        except RuntimeError as error:
            return [first, str(error)]

    assert engine.run("w").output == [1, "cannot reuse already awaited coroutine"]


CLEAN_ENDS = """
import asyncio, gc, logging, sys
sys.path.insert(0, {root!r})
from runr_workflows import Workflows
from sdk.python.tests.engine import KEY, NOW, FakeEngine

logging.basicConfig()
wf = Workflows(signing_key=KEY, clock=lambda: NOW)

@wf.workflow("unawaited")
async def unawaited(ctx, step):
    calls = [step.run("a", lambda: 1), step.run("b", lambda: 2), step.sleep("c", 1)]
    return [await call for call in calls]

@wf.workflow("gathered")
async def gathered(ctx, step):
    return await asyncio.gather(step.run("a", lambda: 1), step.run("b", lambda: 2), step.sleep("c", 1))

@wf.workflow("tasks")
async def tasks(ctx, step):
    left = [asyncio.create_task(step.run(name, asyncio.sleep, 0)) for name in "abc"]
    return [await task for task in left]

@wf.workflow("raising")
async def raising(ctx, step):
    try:
        await asyncio.gather(step.run("a", lambda: 1), step.run("b", lambda: 2))
    finally:
        raise ValueError("while unwinding")

for name in ("unawaited", "gathered", "tasks", "raising"):
    for _ in range(3):
        FakeEngine(wf.handle_request, retries=0).run(name)
gc.collect()
if {close}:
    wf.close()
"""


@pytest.mark.parametrize("close", [True, False])
def test_nothing_is_left_behind_even_where_warnings_are_errors(close: bool) -> None:
    root = Path(__file__).parents[3]
    script = CLEAN_ENDS.format(root=str(root), close=close)
    source = str(root / "sdk" / "python" / "src")

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": source},
    )

    failed = f"WARNING:runr_workflows:workflow raising, run {RUN_ID}: attempt 1 failed: ValueError: while unwinding\n"
    before, *tracebacks = done.stderr.split(failed)
    assert (done.returncode, before, len(tracebacks), len(set(tracebacks))) == (0, "", 3, 1), done.stderr
    assert tracebacks[0].startswith("Traceback (most recent call last):\n")
    assert tracebacks[0].endswith("\nValueError: while unwinding\n")


FORKS = """
import os, sys
sys.path.insert(0, {root!r})
from runr_workflows import Workflows
from sdk.python.tests.engine import KEY, NOW, FakeEngine

wf = Workflows(signing_key=KEY, clock=lambda: NOW)

@wf.workflow("w")
async def workflow(ctx, step):
    return await step.run("a", lambda: os.getpid())

def output():
    return FakeEngine(wf.handle_request).run("w").output

assert output() == os.getpid()
child = os.fork()
if child == 0:
    os._exit(0 if output() == os.getpid() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert output() == os.getpid()
"""


def test_a_forked_server_process_has_threads_of_its_own() -> None:
    root = Path(__file__).parents[3]
    source = str(root / "sdk" / "python" / "src")

    done = subprocess.run(
        [sys.executable, "-c", FORKS.format(root=str(root))],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PYTHONPATH": source},
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_background_threads_start_again_after_a_close() -> None:
    wf = Workflows(signing_key=KEY, clock=lambda: NOW)

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return await step.run("a", lambda: 1)

    for _ in range(2):
        assert FakeEngine(wf.handle_request).run("w").output == 1
        wf.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "runr-loop"]
