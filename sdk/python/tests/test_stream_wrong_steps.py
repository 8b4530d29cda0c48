"""Steps over the worker stream that user code has got wrong: nested, never awaited, given up, or not to be stored."""

from __future__ import annotations

import asyncio

from runr_workflows import AsyncStep, Context, Workflows
from sdk.python.tests.stream_acks import finish, give
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]


async def test_a_result_that_json_cannot_hold_fails_its_step(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", give, b"bytes")

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.fields["op"], op.fields["non_retriable"]) == ("step_failed", True)
        assert "bytes" in op.fields["error"]["message"]


async def test_a_nested_step_fails_the_run_once_the_others_have_ended(wf: Workflows) -> None:
    later: list[str] = []
    slow = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def outer() -> str:
            try:
                return await step.run("inner", give, "inner")
            except BaseException:
                later.append("swallowed")
                return "swallowed"

        await asyncio.gather(step.run("slow", slow.wait), step.run("outer", outer))

    async with connected(wf) as stream:
        stream.execute("w")
        while not later:
            await asyncio.sleep(0)
        await stream.heard()
        assert stream.is_silent()
        slow.set()
        op = await stream.op()
        assert (op.id, op.last) == ("slow", False), "a body that was executed is not lost"
        end = await stream.op()
        assert (end.fields["op"], end.fields["non_retriable"], end.last) == ("run_failed", True, True)
        assert end.fields["error"]["name"] == "NestedStepError"
        assert "'inner'" in end.fields["error"]["message"]
        assert "'outer'" in end.fields["error"]["message"]


async def test_a_nested_step_from_the_thread_of_a_sync_body_is_found_too(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("outer", lambda: step.run("inner", give, 1))

    async with connected(wf) as stream:
        stream.execute("w")
        end = await stream.op()
        assert (end.fields["op"], end.fields["error"]["name"], end.last) == ("run_failed", "NestedStepError", True)
    wf.close()


async def test_a_step_call_that_is_never_awaited_fails_the_run(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", give, 1)
        step.run("forgotten", give, 2)

    async with connected(wf) as stream:
        stream.execute("w")
        end = await finish(stream)
        assert end.fields["error"]["name"] == "StepNotAwaitedError"
        assert "forgotten" in end.fields["error"]["message"]


async def test_a_timeout_of_user_code_around_a_body_leaves_the_step_undone(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            async with asyncio.timeout(0.01):
                await step.run("slow", asyncio.sleep, 60)
        except TimeoutError:
            await step.run("instead", give, None)

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.id, op.number) == ("instead", 1)
        stream.ack(op)
        assert (await finish(stream)).fields["op"] == "run_completed"
