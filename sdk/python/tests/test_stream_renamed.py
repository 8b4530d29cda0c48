"""Steps that were renamed while their runs are active are told over the worker stream, and nothing else is."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, Workflows
from sdk.python.tests.alarms import SIGN
from sdk.python.tests.engine import RUN_ID
from sdk.python.tests.stream_acks import give
from sdk.python.tests.stream_engine import PATIENCE_S, EngineStream
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]

RESERVED: dict[str, Any] = {"reserve": {"status": "completed", "output": "r-1"}}


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if SIGN in record.getMessage()]


async def finish(stream: EngineStream) -> list[str | None]:
    """The ids of the ops until the last one, each acknowledged."""
    ids: list[str | None] = []
    while True:
        op = await stream.op()
        stream.ack(op)
        if op.last:
            return ids
        ids.append(op.id)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_renamed_step_is_told_once_a_run(
    wf: Workflows, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    if is_async:

        @wf.workflow("w")
        async def in_line(ctx: Context, step: AsyncStep) -> None:
            for step_id in ("reserve-funds", "pay"):
                await step.run(step_id, give, 1)
    else:

        @wf.workflow("w")
        def workflow(ctx: Context, step: Step) -> None:
            for step_id in ("reserve-funds", "pay"):
                step.run(step_id, lambda: 1)

    async with connected(wf) as stream:
        stream.execute("w", RESERVED)
        assert await finish(stream) == ["reserve-funds", "pay"]
        stream.execute("w", RESERVED, epoch=2)
        assert await finish(stream) == ["reserve-funds", "pay"]
    (told,) = alarms(caplog)
    assert told.startswith(
        f"workflow w, run {RUN_ID}: step 'reserve-funds' was new and was executed, and the code before it did not ask"
        " for 'reserve', of which a result is stored"
    )


async def test_in_a_gather_and_behind_an_open_step(wf: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run("reserve-funds", give, 1), step.sleep("nap", "1h"))

    async with connected(wf) as stream:
        stream.execute("w", RESERVED, open_steps=["nap"])
        op = await stream.op()
        assert op.id == "reserve-funds"
    assert len(alarms(caplog)) == 1


async def test_other_orders_of_unchanged_code_are_not_told(wf: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    @wf.workflow("gathered")
    async def gathered(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run("a", give, 1), step.run("b", give, 1), step.run("reserve", give, 1))

    @wf.workflow("branches")
    async def branches(ctx: Context, step: AsyncStep) -> None:
        async def branch(*ids: str) -> None:
            for step_id in ids:
                await step.run(step_id, give, 1)

        await asyncio.gather(branch("a", "b"), branch("c", "reserve"))

    async with connected(wf) as stream:
        stream.execute("gathered", RESERVED)
        assert sorted(str(id) for id in await finish(stream)) == ["a", "b"]
        stream.execute("branches", RESERVED, epoch=2)
        assert (await stream.op()).id == "a"
    assert alarms(caplog) == []


async def test_threads_of_a_sync_workflow_are_not_judged(wf: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    has_run = threading.Event()
    with ThreadPoolExecutor(2) as pool:

        @wf.workflow("w")
        def workflow(ctx: Context, step: Step) -> None:
            def later() -> None:
                has_run.wait(PATIENCE_S)
                step.run("reserve", lambda: 1)

            second = pool.submit(copy_context().run, later)
            pool.submit(copy_context().run, step.run, "a", has_run.set).result()
            second.result()

        async with connected(wf) as stream:
            stream.execute("w", RESERVED)
            assert await finish(stream) == ["a"]
    assert alarms(caplog) == []
