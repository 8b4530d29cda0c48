"""What happens to invocations when a stream breaks: nothing is executed twice while the process lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from runr_workflows import AsyncStep, Context, Workflows
from runr_workflows.connect import live_invocation
from sdk.python.tests.stream_acks import give
from sdk.python.tests.stream_engine import EngineStream, Manners, SentOp, StreamEngine
from sdk.python.tests.stream_worker import wf

__all__ = ["wf"]

ALREADY = 2


@pytest.fixture
async def engine(wf: Workflows) -> AsyncIterator[StreamEngine]:
    """An engine that the worker is connected to."""

    @wf.workflow("other")
    async def other(ctx: Context, step: AsyncStep) -> None:
        """So that there is one."""

    async with StreamEngine() as engine, wf.connection(engine.url, max_concurrency=10) as connection:
        yield engine
        connection.cut_off()
        await connection.wait()


def resumed(resume: pb.Resume, key: pb.InvocationKey | None) -> pb.EngineMessage:
    """The answer to a Resume of one invocation."""
    (item,) = resume.items
    return pb.EngineMessage(resume_ack=pb.ResumeAck(items=[pb.ResumeAck.Item(key=item.key, resumed_as=key)]))


async def broken(engine: StreamEngine, stream: EngineStream) -> EngineStream:
    """The next stream, after this one was broken."""
    stream.drop()
    return await engine.accept()


async def test_a_lost_acknowledgement_repeats_the_op_and_not_the_body(wf: Workflows, engine: StreamEngine) -> None:
    bodies: list[str] = []

    async def body(name: str) -> str:
        bodies.append(name)
        return name

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[str]:
        return [await step.run("a", body, "a"), await step.run("b", body, "b")]

    first = await engine.accept()
    key = first.execute("w")
    sent = await first.op()
    second = await broken(engine, first)
    assert second.hello.session == first.hello.session
    assert second.hello.nonce != first.hello.nonce
    resume = await second.expect("resume")
    (item,) = resume.items
    assert item.key == key
    assert [(op.number, op.op) for op in item.unacked] == [(1, sent.message.op)]
    second.say(resumed(resume, key))
    second.ack(sent, {"status": "completed", "output": "a"}, outcome=ALREADY)
    op = await second.op()
    assert (op.id, op.number, op.message.key) == ("b", 2, key)
    second.ack(op)
    assert (await second.op()).fields["output"] == ["a", "b"]
    assert bodies == ["a", "b"]


async def test_a_body_that_ends_while_there_is_no_stream_is_brought_along(wf: Workflows, engine: StreamEngine) -> None:
    gate, ended = asyncio.Event(), asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def slow() -> str:
            await gate.wait()
            ended.set()
            return "slow"

        await step.run("slow", slow)

    first = await engine.accept()
    key = first.execute("w")
    await first.heard()
    engine.manners = Manners(goodbye=("SHUTDOWN", "not now"))
    first.drop()
    async with asyncio.timeout(10):
        while not engine.refused:
            await asyncio.sleep(0.01)
    gate.set()
    await ended.wait()
    engine.manners = Manners()
    second = await engine.accept()
    resume = await second.expect("resume")
    assert [op.number for op in resume.items[0].unacked] == [1]
    second.say(resumed(resume, key))
    second.ack(SentOp(resume.items[0].unacked[0]))
    assert (await second.op()).number == 2


async def test_ops_between_a_resume_and_its_answer_follow_under_the_new_key(
    wf: Workflows, engine: StreamEngine
) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run("quick", give, 1), step.run("slow", gate.wait))

    first = await engine.accept()
    first.execute("w", epoch=3)
    quick = await first.op()
    second = await broken(engine, first)
    resume = await second.expect("resume")
    gate.set()
    await second.heard()
    assert second.is_silent()
    later = pb.InvocationKey(run_id=quick.message.key.run_id, epoch=4, invocation=1)
    second.say(resumed(resume, later))
    slow = await second.op()
    assert (slow.id, slow.number, slow.message.key) == ("slow", 2, later)
    second.ack(quick, key=later)
    second.ack(slow)
    assert (await second.op()).message.key == later


async def test_an_invocation_that_the_engine_does_not_resume_is_unwound(wf: Workflows, engine: StreamEngine) -> None:
    ended = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            await step.run("a", give, 1)
        finally:
            ended.set()

    first = await engine.accept()
    first.execute("w")
    await first.op()
    second = await broken(engine, first)
    second.say(resumed(await second.expect("resume"), None))
    await asyncio.wait_for(ended.wait(), 10)
    second.execute("w", epoch=2)
    assert (await second.op()).message.key.epoch == 2


async def test_an_end_that_may_be_lost_is_said_again(wf: Workflows, engine: StreamEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.sleep("nap", "1h")

    first = await engine.accept()
    key = first.execute("w", open_steps=["nap"])
    await first.expect("end")
    second = await broken(engine, first)
    resume = await second.expect("resume")
    assert [item.key for item in resume.items] == [key]
    second.say(resumed(resume, key))
    assert (await second.expect("end")).key == key


async def test_an_end_that_asks_for_the_next_invocation_is_said_again_as_it_was(
    wf: Workflows, engine: StreamEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_invocation, "IDLE_S", 30.0)  # the delivery comes first, however slow the machine is

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def chain() -> None:
            await step.sleep("nap", "1h")

        await asyncio.gather(step.sleep("nap", "1h"), chain())

    first = await engine.accept()
    key = first.execute("w", open_steps=["nap"])
    first.deliver(key, "nap", {"status": "completed", "output": None})
    assert (await first.expect("end")).again
    second = await broken(engine, first)
    second.say(resumed(await second.expect("resume"), key))
    assert (await second.expect("end")).again


async def test_a_last_op_without_an_acknowledgement_is_brought_along(wf: Workflows, engine: StreamEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        return "done"

    first = await engine.accept()
    key = first.execute("w")
    await first.op()
    second = await broken(engine, first)
    resume = await second.expect("resume")
    assert [op.last for op in resume.items[0].unacked] == [True]
    second.say(resumed(resume, key))
    second.ack(SentOp(resume.items[0].unacked[0]), outcome=ALREADY)
    third = await broken(engine, second)
    assert list((await third.expect("resume")).items) == []


async def test_an_op_that_is_acknowledged_is_not_brought_along(wf: Workflows, engine: StreamEngine) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run("quick", give, 1), step.run("slow", gate.wait))

    first = await engine.accept()
    key = first.execute("w")
    first.ack(await first.op())
    await first.heard()
    second = await broken(engine, first)
    resume = await second.expect("resume")
    assert (resume.items[0].key, list(resume.items[0].unacked)) == (key, [])
    second.say(resumed(resume, key))
    gate.set()
    assert (await second.op()).number == 2


async def test_half_of_an_execute_is_forgotten_with_its_stream(wf: Workflows, engine: StreamEngine) -> None:
    first = await engine.accept()
    part = pb.Execute(key=pb.InvocationKey(run_id="01J", epoch=1, invocation=1), request_chunk=b"{", workflow="other")
    first.say(pb.EngineMessage(execute=part))
    await first.heard()
    second = await broken(engine, first)
    assert list((await second.expect("resume")).items) == []
    second.execute("other")
    assert (await second.op()).fields["op"] == "run_completed"


async def test_a_silent_engine_is_left(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        """Never run."""

    manners = Manners(heartbeat_ms=30, dead_after_ms=90, beats=False)
    async with StreamEngine(manners) as engine, wf.connection(engine.url, drain_seconds=0):
        first = await engine.accept()
        await asyncio.wait_for(first.beats.wait(), 10)
        engine.manners = Manners(heartbeat_ms=30, dead_after_ms=90)
        second = await engine.accept()
        assert second.hello.session == first.hello.session
        await asyncio.wait_for(first.ended.wait(), 10)


async def test_an_engine_that_beats_is_not_left(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        """Ends at once."""

    manners = Manners(heartbeat_ms=20, dead_after_ms=200)
    async with StreamEngine(manners) as engine, wf.connection(engine.url, drain_seconds=0):
        stream = await engine.accept()
        for _ in range(15):  # longer than the time after which silence is death
            stream.beats.clear()
            await asyncio.wait_for(stream.beats.wait(), 10)
        stream.execute("w")
        assert (await stream.op()).last


async def test_a_draining_engine_gets_a_second_stream_and_keeps_its_invocations(
    wf: Workflows, engine: StreamEngine
) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("slow", gate.wait)

    first = await engine.accept()
    assert first.hello.credits == 10
    key = first.execute("w")
    await first.heard()
    first.say(pb.EngineMessage(drain=pb.Drain(reason="deploy")))
    second = await engine.accept()
    assert second.hello.credits == 9, "one is in use by the other executor"
    assert list((await second.expect("resume")).items) == []
    gate.set()
    op = await first.op()
    assert op.message.key == key
    first.ack(op, leave=2)
    await first.expect("end")
    assert (await second.expect("credits")).add == 1
    await first.closed()
    second.execute("other")
    assert (await second.op()).last


async def test_what_a_drained_stream_carries_when_it_breaks_is_over(wf: Workflows, engine: StreamEngine) -> None:
    cancelled = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            await step.run("slow", asyncio.sleep, 3600)
        finally:
            cancelled.set()

    first = await engine.accept()
    first.execute("w")
    await first.heard()
    first.say(pb.EngineMessage(drain=pb.Drain()))
    second = await engine.accept()
    await second.expect("resume")
    first.drop()
    await asyncio.wait_for(cancelled.wait(), 10)
    assert (await second.expect("credits")).add == 1


async def test_a_loss_and_its_end_are_logged_as_loud(
    wf: Workflows, engine: StreamEngine, caplog: pytest.LogCaptureFixture
) -> None:
    again = await broken(engine, await engine.accept())
    await again.expect("resume")  # the worker knows of it
    lines = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    at = next(n for n, line in enumerate(lines) if line.startswith(f"WARNING the stream to {engine.url} is lost"))
    assert any(line.startswith(f"WARNING connected again to {engine.url} (engine ") for line in lines[at:])
