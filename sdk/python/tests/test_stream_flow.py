"""What goes over the stream together, in parts, and not before there is room."""

from __future__ import annotations

import asyncio

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from runr_workflows import AsyncStep, Context, StepError, Workflows
from sdk.python.tests.engine import EVENT
from sdk.python.tests.stream_acks import give
from sdk.python.tests.stream_engine import EngineStream, Manners
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]


@pytest.mark.parametrize("chunk", [7, 1_000_000])
async def test_an_execute_in_parts(wf: Workflows, chunk: int) -> None:
    data = {"text": "ü" * (2000 if chunk == 7 else 2_000_000)}

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return len(ctx.event["data"]["text"])

    async with connected(wf) as stream:
        stream.execute("w", event={**EVENT, "data": data}, chunk=chunk)
        assert (await stream.op()).fields["output"] == len(data["text"])


async def test_parts_of_two_executes_may_be_mixed(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        return ctx.run_id

    async with connected(wf) as stream:
        keys = [stream.execute("w", run_id=f"01J{n:023}", chunk=50) for n in range(2)]
        responses = [stream.outgoing.get_nowait() for _ in range(stream.outgoing.qsize())]
        half = len(responses) // 2
        for pair in zip(responses[:half], responses[half:], strict=True):
            for response in pair:
                stream.outgoing.put_nowait(response)
        ops = [await stream.op() for _ in keys]
        assert {op.fields["output"] for op in ops} == {key.run_id for key in keys}


async def test_a_large_result_is_one_op(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return len(await step.run("large", give, "x" * 7_000_000))

    async with connected(wf) as stream:
        stream.execute("w")
        stream.ack(await stream.op())
        assert (await stream.op()).fields["output"] == 7_000_000


async def test_what_is_too_large_for_an_op_fails_for_good(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        with pytest.raises(StepError, match="TooLarge"):
            await step.run("large", give, "ü" * 5_000_000)
        return "x" * 10_000_000

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.fields["op"], op.fields["id"], op.fields["non_retriable"]) == ("step_failed", "large", True)
        assert op.fields["error"]["name"] == "TooLarge"
        stream.ack(op, {"status": "failed", "error": op.fields["error"]})
        op = await stream.op()
        assert (op.fields["op"], op.fields["error"]["name"], op.last) == ("run_failed", "TooLarge", True)


async def without_room(stream: EngineStream) -> None:
    """What `heard` is where there is no room for an op: an invocation that is cancelled ends without one."""
    key = stream.execute("idle", run_id="01J0000000000000000000IDLE")
    stream.say(pb.EngineMessage(cancel=pb.Cancel(key=key)))
    assert (await stream.expect("end")).key == key


def idle(wf: Workflows) -> None:
    @wf.workflow("idle")
    async def wait(ctx: Context, step: AsyncStep) -> None:
        await asyncio.Event().wait()


async def test_ops_that_are_not_acknowledged_are_bounded(wf: Workflows) -> None:
    idle(wf)

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return len(await asyncio.gather(*(step.run("part", give, "x" * 400) for _ in range(6))))

    async with connected(wf, Manners(max_unacked_bytes=2800)) as stream:
        stream.execute("w")
        ops = list((await stream.ops(3)).values())
        for number in range(4, 7):
            await without_room(stream)
            assert stream.is_silent()
            stream.ack(ops.pop(0))
            ops.append(await stream.op())
            assert ops[-1].number == number
        for op in ops:
            stream.ack(op)
        assert (await stream.op()).last


async def test_one_op_is_sent_however_large_it_is(wf: Workflows) -> None:
    idle(wf)

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(*(step.run("part", give, "x" * 400) for _ in range(2)))

    async with connected(wf, Manners(max_unacked_bytes=10)) as stream:
        stream.execute("w")
        op = await stream.op()
        await without_room(stream)
        assert stream.is_silent()
        stream.ack(op)
        assert (await stream.op()).number == 2


async def test_ops_of_an_abandoned_invocation_make_room(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(*(step.run("part", give, "x" * 400) for _ in range(3)))

    async with connected(wf, Manners(max_unacked_bytes=10)) as stream:
        stream.execute("w")
        op = await stream.op()
        stream.ack(op, outcome=3)
        await stream.expect("end")
        stream.execute("w", epoch=2)
        assert (await stream.op()).message.key.epoch == 2


async def test_what_is_ready_together_is_sent_together(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", give, 1)

    async with connected(wf) as stream:
        messages = [stream.outgoing.get_nowait() for _ in range(stream.outgoing.qsize())]
        for number in range(40):
            stream.execute("w", run_id=f"01J{number:023}")
            response = stream.outgoing.get_nowait()
            assert response is not None
            messages.append(response)
        stream.say(*(each for message in messages if message is not None for each in message.messages))
        ops = [await stream.op() for _ in range(40)]
        stream.requests.clear()
        acks = [pb.EngineMessage(ack=pb.Ack(key=op.message.key, number=op.number, outcome=1)) for op in ops]
        stream.say(*acks)
        for _ in range(40):
            assert (await stream.op()).last
        assert sum(stream.requests) == 40
        assert len(stream.requests) <= 3


async def test_messages_of_an_unknown_kind_are_ignored(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        return "done"

    async with connected(wf) as stream:
        stream.say(pb.EngineMessage(), pb.EngineMessage.FromString(b"\xf2\x07\x02hi"))
        stream.execute("w")
        assert (await stream.op()).fields["output"] == "done"
