"""What a worker answers when the engine asks for runs that it was given, or was to be given, by another executor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from runr_workflows import AsyncStep, Context, Workflows
from sdk.python.tests.stream_engine import EngineStream, Manners, StreamEngine
from sdk.python.tests.stream_worker import wf

__all__ = ["wf"]

OTHER = "01J00000000000000000000009"


class Held:
    """A workflow of two steps, the first of which lasts until `gate` is opened."""

    def __init__(self, wf: Workflows) -> None:
        self.gate = asyncio.Event()
        self.begun: list[str] = []

        @wf.workflow("w")
        async def workflow(ctx: Context, step: AsyncStep) -> None:
            await step.run("a", self._body, "a")
            await step.run("b", self._body, "b")

    async def _body(self, name: str) -> str:
        self.begun.append(name)
        await self.gate.wait()
        return name


@pytest.fixture
def held(wf: Workflows) -> Held:
    return Held(wf)


@pytest.fixture
async def engine(wf: Workflows, held: Held) -> AsyncIterator[StreamEngine]:
    """An engine that the worker is connected to."""
    async with StreamEngine(Manners(features=("resume", "bring"))) as engine, wf.connection(engine.url) as connection:
        yield engine
        held.gate.set()
        connection.cut_off()
        await connection.wait()


def recall(*keys: pb.InvocationKey) -> pb.EngineMessage:
    asked = [pb.InvocationKey(run_id=key.run_id, epoch=key.epoch) for key in keys]
    return pb.EngineMessage(recall=pb.Recall(keys=asked))


async def drained(engine: StreamEngine, first: EngineStream) -> EngineStream:
    """The next stream, while the first one drains and still carries what it has."""
    first.say(pb.EngineMessage(drain=pb.Drain()))
    second = await engine.accept()
    assert list((await second.expect("resume")).items) == []
    return second


async def ends(stream: EngineStream, item: pb.Resume.Item, held: Held) -> None:
    """It is taken over here and goes on to its end, and nothing has run twice."""
    key = pb.InvocationKey(run_id=item.key.run_id, epoch=item.key.epoch + 2, invocation=1)
    stream.say(pb.EngineMessage(resume_ack=pb.ResumeAck(items=[pb.ResumeAck.Item(key=item.key, resumed_as=key)])))
    held.gate.set()
    for id_ in ("a", "b", "run_completed"):
        op = await stream.op()
        assert (op.id, op.message.key) == (id_, key)
        stream.ack(op)
    assert held.begun == ["a", "b"]


async def test_what_never_came_is_unknown_and_is_not_begun_when_it_comes_late(engine: StreamEngine, held: Held) -> None:
    stream = await engine.accept()
    never = pb.InvocationKey(run_id=OTHER, epoch=3)
    stream.say(recall(never))
    bring = await stream.expect("bring")
    assert (list(bring.items), list(bring.unknown)) == ([], [never])
    late = stream.execute("w", run_id=OTHER, epoch=3)
    assert (await stream.expect("end")).key == late
    newer = stream.execute("w", run_id=OTHER, epoch=5)
    held.gate.set()
    assert (await stream.op()).message.key == newer


async def test_about_what_it_has_dropped_it_is_silent(engine: StreamEngine, held: Held) -> None:
    stream = await engine.accept()
    dropped = stream.execute("w", epoch=3)
    await stream.heard()
    stream.say(pb.EngineMessage(cancel=pb.Cancel(key=dropped)))
    assert (await stream.expect("end")).key == dropped
    never = pb.InvocationKey(run_id=OTHER, epoch=3)
    stream.say(recall(dropped, never))
    assert list((await stream.expect("bring")).unknown) == [never]
    # Nothing of the next lease has begun.
    next_one = pb.InvocationKey(run_id=dropped.run_id, epoch=4)
    stream.say(recall(next_one))
    assert list((await stream.expect("bring")).unknown) == [next_one]


async def test_what_it_has_over_a_stream_that_drains_it_brings_along_when_asked(
    engine: StreamEngine, held: Held
) -> None:
    first = await engine.accept()
    key = first.execute("w")
    await first.heard()
    second = await drained(engine, first)
    second.say(recall(key))
    (item,) = (await second.expect("bring")).items
    assert item.key == key
    await ends(second, item, held)


async def test_what_a_draining_stream_carried_is_brought_along_when_it_breaks(engine: StreamEngine, held: Held) -> None:
    first = await engine.accept()
    key = first.execute("w")
    await first.heard()
    second = await drained(engine, first)
    first.drop()
    (item,) = (await second.expect("bring")).items
    assert item.key == key
    second.say(recall(key))  # it is on its way: no second answer
    await ends(second, item, held)


async def test_an_engine_that_takes_no_bring_is_given_none(engine: StreamEngine, held: Held) -> None:
    first = await engine.accept()
    first.execute("w")
    await first.heard()
    engine.manners.features = ("resume",)
    second = await drained(engine, first)
    first.drop()
    held.gate.set()
    await second.heard()
    assert second.is_silent()
    assert held.begun == ["a"]


async def test_an_older_lease_does_not_replace_a_newer_one(engine: StreamEngine, held: Held) -> None:
    stream = await engine.accept()
    newer = stream.execute("w", epoch=4)
    older = stream.execute("w", epoch=3)
    assert (await stream.expect("end")).key == older
    held.gate.set()
    op = await stream.op()
    assert (op.id, op.message.key) == ("a", newer)
