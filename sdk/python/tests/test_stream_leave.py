"""How an invocation is brought to leave the worker: yields, cancellation, abandonment; none can be swallowed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from runr_workflows import AsyncStep, Context, Step, Workflows
from sdk.python.tests.stream_acks import give
from sdk.python.tests.stream_engine import SentOp
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]

SLOT, DRAIN, ENDED, LATER = 1, 2, 3, 4
ABANDONED = 3


@pytest.mark.parametrize("reason", [SLOT, DRAIN, ENDED, LATER])
async def test_a_yield_unwinds_the_invocation_whatever_the_code_catches(wf: Workflows, reason: int) -> None:
    unwound: list[str] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        try:
            await step.run("a", give, 1)
        except BaseException:
            unwound.append("caught")
            await step.run("b", give, 2)
        finally:
            unwound.append("finally")
            await step.sleep("c", "1s")
        return "swallowed"

    async with connected(wf) as stream:
        key = stream.execute("w")
        stream.ack(await stream.op(), leave=reason)
        assert (await stream.expect("end")).key == key
        async with asyncio.timeout(10):
            while len(unwound) < 2:
                await asyncio.sleep(0.001)
        await stream.heard()
        assert stream.is_silent()


async def test_a_yield_lets_bodies_end_and_starts_no_new_one(wf: Workflows) -> None:
    gate = asyncio.Event()
    begun: list[str] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def branch(quick: Awaitable[int]) -> None:
            await quick
            begun.append("after quick")

        async def slow() -> str:
            await gate.wait()
            return "slow"

        await asyncio.gather(branch(step.run("quick", give, 1)), step.run("slow", slow))

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op(), leave=SLOT)
        await stream.heard()
        gate.set()
        op = await stream.op()
        assert (op.id, op.fields["output"], op.last) == ("slow", "slow", True), "nothing is left to do after it"
        assert begun == []


async def test_two_bodies_that_end_after_a_yield_are_both_sent(wf: Workflows) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run("quick", give, 1), *(step.run("slow", gate.wait) for gate in gates))

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op(), leave=SLOT)
        await stream.heard()
        gates[0].set()
        first = await stream.op()
        gates[1].set()
        second = await stream.op()
        assert [(op.id, op.last) for op in (first, second)] == [("slow", False), ("slow:1", True)]


@pytest.mark.parametrize("how", ["ack", "cancel"])
async def test_an_abandoned_invocation_sends_nothing_more_and_its_bodies_are_cancelled(wf: Workflows, how: str) -> None:
    cancelled = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def slow() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()

        await asyncio.gather(step.run("quick", give, 1), step.run("slow", slow))

    async with connected(wf) as stream:
        key = stream.execute("w")
        op = await stream.op()
        if how == "ack":
            stream.ack(op, outcome=ABANDONED)
        else:
            stream.say(pb.EngineMessage(cancel=pb.Cancel(key=key, reason="cancelled by hand")))
        assert (await stream.expect("end")).key == key, "gives the credit back"
        assert cancelled.is_set()


async def test_a_newer_invocation_of_the_same_run_replaces_the_older_one(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return int(await step.run("a", give, 1))

    async with connected(wf) as stream:
        stream.execute("w")
        old = await stream.op()
        key = stream.execute("w", epoch=2)
        messages = {message.WhichOneof("kind"): message for message in (await stream.next(), await stream.next())}
        assert messages["end"].end.key == old.message.key
        new = SentOp(messages["op"].op)
        stream.ack(old)
        assert new.message.key == key
        stream.ack(new)
        assert (await stream.op()).fields["output"] == 1


async def test_a_sync_body_of_an_abandoned_invocation_runs_to_its_end_and_is_dropped(wf: Workflows) -> None:
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        def body() -> None:
            begun.set()
            assert gate.wait(10)
            ended.set()

        try:
            step.run("a", body)
        except BaseException:
            step.run("b", body)

    async with connected(wf) as stream:
        key = stream.execute("w")
        assert await asyncio.to_thread(begun.wait, 10)
        stream.say(pb.EngineMessage(cancel=pb.Cancel(key=key)))
        await stream.heard()
        assert stream.is_silent(), "the credit is given back when the body has ended"
        gate.set()
        assert (await stream.expect("end")).key == key
        assert ended.is_set()


async def test_a_workflow_that_is_not_served_here_is_a_failed_attempt(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        """Never run."""

    async with connected(wf) as stream:
        key = stream.execute("other")
        op = await stream.op()
        assert (op.fields["op"], op.fields["error"]["name"], op.last) == ("run_failed", "BadRequest", True)
        assert "'other'" in op.fields["error"]["message"]
        assert op.message.key == key
        assert "non_retriable" not in op.fields


async def test_an_unknown_step_status_fails_the_run(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        try:
            return await step.run("a", give, 1)
        except BaseException:
            return "swallowed"

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op(), {"status": "paused"})
        op = await stream.op()
        assert (op.fields["op"], op.last) == ("run_failed", True)
        assert "paused" in op.fields["error"]["message"]


async def test_system_exit_of_a_workflow_fails_it_and_spares_the_others(wf: Workflows) -> None:
    @wf.workflow("exits")
    async def exits(ctx: Context, step: AsyncStep) -> None:
        raise SystemExit(3)

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return int(await step.run("a", give, 1))

    async with connected(wf) as stream:
        stream.execute("exits", run_id="01J00000000000000000000005")
        assert (await stream.op()).fields["error"]["name"] == "SystemExit"
        stream.execute("w")
        assert (await stream.op()).id == "a"
