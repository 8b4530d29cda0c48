"""Sync workflows over the worker stream: each in a thread, blocked in its step calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from runr_workflows import Context, Step, StepError, Workflows
from sdk.python.tests.stream_engine import PATIENCE_S
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]

FAILED = {"status": "failed", "error": {"name": "Declined", "message": "no money"}}
LATER = 4


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


async def test_a_run_of_steps_is_one_invocation(wf: Workflows) -> None:
    threads: set[str] = set()

    def body(value: int) -> tuple[int]:
        threads.add(threading.current_thread().name)
        return (value,)

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[Any]:
        return [step.run("a", body, 1), step.run("a", body, 2)]

    async with connected(wf) as stream:
        stream.execute("w")
        for number in (1, 2):
            op = await stream.op()
            assert (op.id, op.number, op.last) == (["a", "a:1"][number - 1], number, False)
            stream.ack(op)
        end = await stream.op()
        assert (end.fields["output"], end.last) == ([[1], [2]], True)
        assert len(threads) == 1
        assert "runr-workflow" in threads.pop()


async def test_sleeping_ends_the_invocation_and_cannot_be_swallowed(wf: Workflows) -> None:
    ended = threading.Event()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            step.sleep("nap", "1h")
        except BaseException:
            step.run("b", lambda: 1)
        finally:
            ended.set()
        return "swallowed"

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.id, op.last) == ("nap", True)
        stream.ack(op, leave=LATER)
        assert await asyncio.to_thread(ended.wait, PATIENCE_S), "its thread unwinds in its own time"
        await stream.heard()


async def test_a_step_that_failed_for_good_raises(wf: Workflows) -> None:
    def fail() -> None:
        raise ValueError("no")

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            step.run("charge", fail)
        except StepError as error:
            return error.name
        return "charged"

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert op.fields["op"] == "step_failed"
        stream.ack(op, FAILED)
        assert (await stream.op()).fields["output"] == "Declined"


async def test_a_yield_unwinds_at_the_step_call(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            step.run("a", lambda: 1)
        except BaseException:
            step.run("b", lambda: 2)
        return "swallowed"

    async with connected(wf) as stream:
        key = stream.execute("w")
        stream.ack(await stream.op(), leave=LATER)
        assert (await stream.expect("end")).key == key
        await stream.heard()


async def test_a_nested_step_fails_the_run(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> Any:
        return step.run("outer", lambda: step.run("inner", lambda: 1))

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.fields["op"], op.last) == ("run_failed", True)
        assert "'inner'" in op.fields["error"]["message"]
        assert "'outer'" in op.fields["error"]["message"]


async def test_a_nested_step_from_a_thread_of_a_body_is_found_too(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        def outer() -> None:
            thread = threading.Thread(target=inner)
            thread.start()
            thread.join()

        def inner() -> None:
            try:
                step.run("inner", lambda: 1)
            except BaseException:
                unwound.set()

        step.run("outer", outer)

    unwound = threading.Event()
    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert op.fields["error"]["name"] == "NestedStepError"
        assert await asyncio.to_thread(unwound.wait, PATIENCE_S)


async def test_threads_with_the_workflows_context_run_steps_side_by_side(
    wf: Workflows, pool: ThreadPoolExecutor
) -> None:
    meeting = threading.Barrier(3, timeout=10)

    def body(name: str) -> str:
        meeting.wait()
        return name

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[str]:
        calls = [pool.submit(copy_context().run, step.run, name, body, name) for name in "abc"]
        return [call.result() for call in calls]

    async with connected(wf) as stream:
        stream.execute("w")
        ops = await stream.ops(3)
        assert sorted(ops) == ["a", "b", "c"]
        for name in "bca":
            stream.ack(ops[name])
        assert (await stream.op()).fields["output"] == ["a", "b", "c"]


async def test_threads_without_it_run_steps_one_after_another(wf: Workflows, pool: ThreadPoolExecutor) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[int]:
        return [pool.submit(step.run, name, lambda: 1).result() for name in "ab"]

    async with connected(wf) as stream:
        stream.execute("w")
        for name in "ab":
            op = await stream.op()
            assert (op.id, op.last) == (name, False)
            stream.ack(op)
        assert (await stream.op()).fields["output"] == [1, 1]


async def test_a_sleep_in_a_thread_beside_a_step_is_stored_at_once(wf: Workflows, pool: ThreadPoolExecutor) -> None:
    gate = threading.Event()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        calls = [
            pool.submit(copy_context().run, step.run, "slow", gate.wait, 10),
            pool.submit(copy_context().run, step.sleep, "nap", "1h"),
        ]
        for call in calls:
            call.result()

    async with connected(wf) as stream:
        stream.execute("w")
        nap = await stream.op()
        assert (nap.id, nap.last) == ("nap", False)
        stream.ack(nap)
        gate.set()
        slow = await stream.op()
        assert slow.id == "slow"
        stream.ack(slow)
        await stream.expect("end")


@pytest.mark.parametrize(("first", "second"), [("part", "part"), ("part", "part:1"), ("part:1", "part")])
async def test_threads_that_could_have_each_others_ids_fail_the_run(
    wf: Workflows, pool: ThreadPoolExecutor, first: str, second: str
) -> None:
    """Which of them comes first varies: a replay would give one the result of the other."""

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        def chain(step_id: str) -> int:
            return sum(step.run(step_id, lambda: 1) for _ in range(2))

        calls = [pool.submit(copy_context().run, chain, each) for each in (first, second)]
        return sum(call.result() for call in calls)

    async with connected(wf) as stream:
        stream.execute("w")
        while (op := await stream.op()).fields["op"] == "step_completed":
            stream.ack(op)
        assert (op.fields["op"], op.fields["error"]["name"], op.last) == ("run_failed", "SharedStepIdError", True)
        assert op.fields["non_retriable"]


async def test_threads_with_ids_of_their_own_may_call_them_again(wf: Workflows, pool: ThreadPoolExecutor) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        def chain(step_id: str) -> int:
            return sum(step.run(step_id, lambda: 1) for _ in range(5))

        mine = chain("main")
        calls = [pool.submit(copy_context().run, chain, f"part{number}") for number in range(8)]
        return mine + sum(call.result() for call in calls)

    async with connected(wf) as stream:
        stream.execute("w")
        while (op := await stream.op()).fields["op"] == "step_completed":
            stream.ack(op)
        assert op.fields["output"] == 45


async def test_threads_without_the_context_do_not_call_steps_side_by_side(
    wf: Workflows, pool: ThreadPoolExecutor
) -> None:
    is_told = threading.Event()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[int]:
        first = pool.submit(step.run, "a", lambda: 1)
        is_told.wait(10)
        second = pool.submit(step.run, "b", lambda: 1)
        return [first.result(), second.result()]

    async with connected(wf) as stream:
        stream.execute("w")
        assert (await stream.op()).id == "a"
        is_told.set()
        assert (await stream.op()).fields["error"]["name"] == "SharedStepIdError"


async def test_each_invocation_has_a_thread_at_once(wf: Workflows) -> None:
    meeting = threading.Barrier(20, timeout=10)

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("meet", meeting.wait)

    async with connected(wf) as stream:
        for number in range(20):
            stream.execute("w", run_id=f"01J{number:023}")
        for _ in range(20):
            assert (await stream.op()).fields["op"] == "step_completed"


async def test_a_workflow_that_returns_a_coroutine_fails_with_advice(wf: Workflows) -> None:
    async def inner() -> None:
        """Never awaited."""

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> Any:
        return inner()

    async with connected(wf) as stream:
        stream.execute("w")
        assert "async def" in (await stream.op()).fields["error"]["message"]
