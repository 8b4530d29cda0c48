"""Steps that stay open over the worker stream: sleeps, waits, children, retries; and when an invocation lets go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Event, InvokeError, Workflows
from sdk.python.tests.stream_acks import give
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]

DONE: dict[str, Any] = {"status": "completed", "output": None}
LATER = 4


@pytest.mark.parametrize("kind", ["sleep", "wait_for_event", "invoke"])
async def test_sequential_code_ends_in_the_op_in_which_it_goes_to_sleep(wf: Workflows, kind: str) -> None:
    unwound: list[str] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", give, 1)
        try:
            if kind == "sleep":
                await step.sleep("open", "1h")
            elif kind == "invoke":
                await step.invoke("open", "w")
            else:
                await step.wait_for_event("open", "paid")
        finally:
            unwound.append("finally")
            await step.run("b", give, 2)

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op())
        op = await stream.op()
        assert (op.id, op.fields["op"], op.last) == ("open", kind, True)
        stream.ack(op, leave=LATER)
        key = stream.execute("w", {"a": {"status": "completed", "output": 1}, "open": DONE}, invocation=2)
        op = await stream.op()
        assert (op.id, op.message.key) == ("b", key), "nothing came in between"
        assert unwound[0] == "finally"


async def test_a_sleep_until_a_time_in_the_past_is_not_the_last_op(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        await step.sleep_until("dawn", "2020-01-01T00:00:00Z")
        return "woken"

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert not op.last
        stream.ack(op, DONE)
        assert (await stream.op()).fields["output"] == "woken"


async def test_a_sleep_beside_a_step_is_stored_at_once_and_the_step_runs(wf: Workflows) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.sleep("nap", "1h"), step.run("a", gate.wait))

    async with connected(wf) as stream:
        key = stream.execute("w")
        nap = await stream.op()
        assert (nap.id, nap.last) == ("nap", False)
        stream.ack(nap)
        gate.set()
        op = await stream.op()
        assert (op.id, op.last) == ("a", False)
        stream.ack(op)
        end = await stream.expect("end")
        assert end.key == key, "blocked in the sleep alone, so it lets go"


async def test_a_step_that_is_started_before_a_sleep_of_the_main_task_is_executed_beside_it(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        task = asyncio.create_task(step.run("beside", give, 1))
        await step.sleep("nap", "1h")
        await task

    async with connected(wf) as stream:
        stream.execute("w")
        ops = await stream.ops(2)
        assert {step_id: op.last for step_id, op in ops.items()} == {"nap": False, "beside": False}
        for op in ops.values():
            stream.ack(op)
        await stream.expect("end")


async def test_a_delivery_resolves_a_step_while_another_is_executed(wf: Workflows) -> None:
    gate, resolved = asyncio.Event(), asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def branch(waiting: Awaitable[Event | None]) -> str | None:
            event = await waiting
            resolved.set()
            return event["id"] if event else None

        return list(
            await asyncio.gather(branch(step.wait_for_event("paid", "order.paid")), step.run("slow", gate.wait))
        )

    async with connected(wf) as stream:
        key = stream.execute("w")
        stream.ack(await stream.op())
        stream.deliver(key, "paid", {"status": "completed", "output": {"id": "01J"}})
        await resolved.wait()
        gate.set()
        stream.ack(await stream.op())
        assert (await stream.op()).fields["output"] == ["01J", True]


async def test_a_delivery_may_come_before_the_acknowledgement(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        return (await asyncio.gather(step.invoke("child", "w")))[0]

    async with connected(wf) as stream:
        key = stream.execute("w")
        op = await stream.op()
        stream.deliver(key, "child", {"status": "completed", "output": 3})
        stream.ack(op)
        assert (await stream.op()).fields["output"] == 3


async def test_a_child_that_failed_raises(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        try:
            return await asyncio.gather(step.invoke("child", "w"))
        except InvokeError as error:
            return error.name

    async with connected(wf) as stream:
        key = stream.execute("w")
        stream.ack(await stream.op())
        stream.deliver(key, "child", {"status": "failed", "error": {"name": "InvokeTimeout", "message": "late"}})
        assert (await stream.op()).fields["output"] == "InvokeTimeout"


async def test_open_steps_are_not_sent_again_and_wait_for_their_delivery(wf: Workflows) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        return list(await asyncio.gather(step.invoke("child", "w"), step.sleep("nap", "1h"), step.run("a", gate.wait)))

    async with connected(wf) as stream:
        key = stream.execute("w", open_steps=["child", "nap"])
        stream.deliver(key, "nap", DONE)
        gate.set()
        op = await stream.op()
        assert (op.id, op.number) == ("a", 1)
        stream.deliver(key, "child", {"status": "completed", "output": 7})
        stream.ack(op)
        assert (await stream.op()).fields["output"] == [7, None, True]


async def test_an_invocation_that_finds_only_open_steps_lets_go(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.sleep("nap", "1h")

    async with connected(wf) as stream:
        key = stream.execute("w", open_steps=["nap"])
        assert (await stream.expect("end")).key == key


async def test_code_between_steps_is_no_reason_to_let_go(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", give, 1)
        await asyncio.sleep(0.05)
        await step.run("b", give, 2)

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op())
        assert (await stream.op()).id == "b"


async def test_a_branch_that_awaits_something_else_is_unwound_with_the_open_steps(wf: Workflows) -> None:
    cancelled = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def elsewhere() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()

        await asyncio.gather(step.sleep("nap", "1h"), elsewhere())

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op())
        await stream.expect("end")
        await asyncio.wait_for(cancelled.wait(), 10)


async def test_a_step_that_is_tried_again_later_lets_go(wf: Workflows) -> None:
    async def fail() -> None:
        raise ValueError("no")

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            await step.run("a", fail)
        finally:
            await step.run("b", give, 1)

    async with connected(wf) as stream:
        key = stream.execute("w")
        stream.ack(await stream.op(), leave=LATER)
        assert (await stream.expect("end")).key == key
        await stream.heard()
        assert stream.is_silent()


async def test_a_retry_beside_a_step_that_is_executed_waits_for_it(wf: Workflows) -> None:
    gate = asyncio.Event()

    async def fail() -> None:
        raise ValueError("no")

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run("a", fail), step.run("slow", gate.wait))

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op())
        gate.set()
        op = await stream.op()
        assert (op.id, op.last) == ("slow", False)
        stream.ack(op)
        await stream.expect("end")


async def test_a_workflow_that_returns_while_a_step_is_executed_is_not_done(wf: Workflows) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def body() -> bool:
        begun.set()
        return await gate.wait()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        task = asyncio.create_task(step.run("background", body))
        if ctx.is_replaying:
            await task
        else:
            await begun.wait()
        return "returned"

    async with connected(wf) as stream:
        stream.execute("w")
        await begun.wait()
        await stream.heard()
        gate.set()
        op = await stream.op()
        assert (op.id, op.last) == ("background", True), "that step came first, so its op is the answer"
        stream.ack(op)
        stream.execute("w", {"background": {"status": "completed", "output": True}}, invocation=2)
        assert (await stream.op()).fields["output"] == "returned"


async def test_a_workflow_that_returns_beside_an_open_step_is_not_done(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        background = asyncio.create_task(step.sleep("nap", "1h"))
        await asyncio.sleep(0)
        return "returned" if background.done() or not ctx.is_replaying else "early"

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.id, op.last) == ("nap", False)
        stream.ack(op)
        await stream.expect("end")
        stream.execute("w", {"nap": DONE}, invocation=2)
        assert (await stream.op()).fields["output"] == "returned"


async def test_a_wait_that_user_code_gives_up_lets_the_code_go_on(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        task = asyncio.create_task(step.wait_for_event("paid", "order.paid"))
        await step.run("a", give, 1)
        task.cancel()
        await step.run("b", give, 2)

    async with connected(wf) as stream:
        stream.execute("w")
        ops = await stream.ops(2)
        stream.ack(ops["paid"])
        stream.ack(ops["a"])
        assert (await stream.op()).id == "b"
