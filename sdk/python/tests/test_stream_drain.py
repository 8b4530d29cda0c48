"""How a worker leaves: what is executed ends and is acknowledged, nothing new begins, the process exits."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from runr_workflows import AsyncStep, Context, Step, Workflows
from sdk.python.tests.engine import KEY
from sdk.python.tests.stream_engine import Manners, SentOp, StreamEngine
from sdk.python.tests.stream_worker import wf

__all__ = ["wf"]

ROOT = Path(__file__).parents[3]
DRAIN = 2


async def test_bodies_end_and_are_acknowledged_before_the_worker_leaves(wf: Workflows) -> None:
    gate = asyncio.Event()
    later: list[str] = []

    async def slow() -> str:
        await gate.wait()
        return "slow"

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("slow", slow)
        later.append("after")

    async with StreamEngine() as engine:
        connection = wf.connection(engine.url, drain_seconds=20)
        async with connection:
            stream = await engine.accept()
            stream.execute("w")
            await stream.heard()
            connection.stop()
            drain = await stream.expect("drain")
            assert drain.grace.seconds == 20
            late = stream.execute("w", run_id="01J00000000000000000000009")
            assert (await stream.expect("end")).key == late, "nothing new begins"
            gate.set()
            op = await stream.op()
            assert (op.id, op.last) == ("slow", True)
            stream.ack(op)
            await stream.closed()
            await asyncio.wait_for(connection.wait(), 10)
        assert later == []


async def test_an_idle_worker_leaves_at_once(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        """Never run."""

    async with StreamEngine() as engine:
        async with wf.connection(engine.url):
            stream = await engine.accept()
        await stream.expect("drain")
        await stream.closed()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("runr-workflow")]


async def test_a_stream_that_breaks_during_a_drain_is_resumed(wf: Workflows) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("slow", gate.wait)

    async with StreamEngine() as engine, wf.connection(engine.url) as connection:
        first = await engine.accept()
        first.execute("w")
        await first.heard()
        connection.stop()
        await first.expect("drain")
        first.drop()
        second = await engine.accept()
        await second.expect("drain")
        resume = await second.expect("resume")
        key = resume.items[0].key
        item = pb.ResumeAck.Item(key=key, resumed_as=key)
        second.say(pb.EngineMessage(resume_ack=pb.ResumeAck(items=[item])))
        gate.set()
        second.ack(await second.op())
        await asyncio.wait_for(connection.wait(), 10)


async def test_a_body_that_outlasts_the_drain_is_cut_off(wf: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    cancelled = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            await step.run("slow", asyncio.sleep, 3600)
        finally:
            cancelled.set()

    async with StreamEngine() as engine:
        async with wf.connection(engine.url, drain_seconds=0.05):
            stream = await engine.accept()
            stream.execute("w")
            await stream.heard()
        await asyncio.wait_for(cancelled.wait(), 10)
    assert "longer than 0.05 s" in caplog.text


async def test_the_first_cancellation_drains(wf: Workflows) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("slow", gate.wait)

    async with StreamEngine() as engine:
        serving = asyncio.create_task(wf.connect_async(engine.url))
        stream = await engine.accept()
        stream.execute("w")
        await stream.heard()
        serving.cancel()
        await stream.expect("drain")
        gate.set()
        op = await stream.op()
        assert (op.id, op.last) == ("slow", True)
        stream.ack(op)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 10)


async def test_the_second_cancellation_cuts_off(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("slow", asyncio.sleep, 3600)

    async with StreamEngine() as engine:
        serving = asyncio.create_task(wf.connect_async(engine.url))
        stream = await engine.accept()
        stream.execute("w")
        await stream.heard()
        serving.cancel()
        await stream.expect("drain")
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 10)


WORKER = """
import asyncio, logging, sys
from runr_workflows import Workflows

logging.basicConfig(level={level!r})

wf = Workflows(signing_key={key!r})

@wf.workflow("asleep")
async def asleep(ctx, step):
    async def body():
        await step_may_end()
        return "ended"

    return await step.run("a", body)

@wf.workflow("blocked")
def blocked(ctx, step):
    step.run("a", sys.stdin.read)

@wf.workflow("stuck")
async def stuck(ctx, step):
    await step.run("a", sys.stdin.read)

async def step_may_end():
    await asyncio.to_thread(sys.stdin.readline)

wf.connect({url!r}, drain_seconds={drain})
"""


async def start(url: str, drain: float = 30, level: str = "WARNING") -> asyncio.subprocess.Process:
    """A worker in a process of its own."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        WORKER.format(key=KEY, url=url, drain=drain, level=level),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "sdk/python/src"), str(ROOT / "proto/gen/python")]),
        },
    )


async def ended(worker: asyncio.subprocess.Process) -> tuple[int | None, str]:
    """How a worker ended, and what it wrote."""
    async with asyncio.timeout(20):
        _, stderr = await worker.communicate()
    return worker.returncode, stderr.decode()


@pytest.mark.parametrize("level", ["WARNING", "INFO"])
async def test_sigterm_drains_and_the_process_ends_well(level: str) -> None:
    async with StreamEngine() as engine:
        worker = await start(engine.url, level=level)
        stream = await engine.accept()
        stream.execute("asleep")
        await stream.heard()
        worker.send_signal(signal.SIGTERM)
        await stream.expect("drain")
        assert worker.stdin is not None
        worker.stdin.write(b"go on\n")
        op = await stream.op()
        assert (op.fields["output"], op.last) == ("ended", True)
        stream.ack(op, leave=DRAIN)
        code, stderr = await ended(worker)
    lines = stderr.splitlines()
    assert code == 0
    assert lines[0] == f"connected to {engine.url}: workflows asleep, blocked, stuck"
    leaving = f"leaving: what is executed may end ({engine.url})"
    assert [line for line in lines[1:] if "not served" not in line] == [leaving]


@pytest.mark.parametrize("workflow", ["blocked", "stuck"])
async def test_a_second_signal_cuts_off_whatever_is_executed(workflow: str) -> None:
    async with StreamEngine() as engine:
        worker = await start(engine.url)
        stream = await engine.accept()
        stream.execute(workflow)
        await stream.heard()
        worker.send_signal(signal.SIGTERM)
        await stream.expect("drain")
        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await worker.wait() == 0
        await ended(worker)


async def test_a_signal_while_it_is_not_connected_ends_it() -> None:
    async with StreamEngine(Manners(goodbye=("SHUTDOWN", "not now"))) as engine:
        worker = await start(engine.url)
        async with asyncio.timeout(20):
            while not engine.refused:
                await asyncio.sleep(0.01)
        worker.send_signal(signal.SIGINT)
        code, stderr = await ended(worker)
    assert (code, "Traceback" in stderr) == (0, False)


async def test_a_refusal_ends_the_process_with_a_sentence() -> None:
    async with StreamEngine(Manners(key="another")) as engine:
        code, stderr = await ended(await start(engine.url))
    assert code == 1
    (line,) = stderr.splitlines()
    assert line.startswith("the engine refused the worker: UNAUTHENTICATED: ")


async def test_an_unacknowledged_last_op_is_waited_for(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        return "done"

    async with StreamEngine() as engine:
        connection = wf.connection(engine.url)
        async with connection:
            stream = await engine.accept()
            stream.execute("w")
            op: SentOp = await stream.op()
            connection.stop()
            await stream.expect("drain")
            assert stream.is_silent()
            stream.ack(op)
            await stream.closed()
