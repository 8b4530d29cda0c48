"""Steps over the worker stream: one invocation executes many, each goes on after its acknowledgement."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, StepError, Workflows
from sdk.python.tests.engine import RUN_ID
from sdk.python.tests.stream_acks import finish, give
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]

FAILED = {"status": "failed", "error": {"name": "Declined", "message": "no money", "stack": "at bank"}}


async def test_a_run_of_steps_is_one_invocation_and_each_body_runs_once(wf: Workflows) -> None:
    bodies: list[str] = []

    async def body(name: str) -> str:
        bodies.append(name)
        return name.lower()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        return await step.run("A", body, "A") + await step.run("B", body, "B")

    async with connected(wf) as stream:
        stream.execute("w")
        first = await stream.op()
        assert first.fields | {"duration_ms": 0} == {
            "op": "step_completed",
            "id": "A",
            "name": "A",
            "duration_ms": 0,
            "input": ["A"],
            "output": "a",
        }
        assert bodies == ["A"], "the call waits for its acknowledgement"
        assert (first.number, first.last) == (1, False)
        stream.ack(first)
        second = await stream.op()
        stream.ack(second)
        end = await stream.op()
        assert [(op.id, op.number, op.last) for op in (second, end)] == [("B", 2, False), ("run_completed", 3, True)]
        assert end.fields["output"] == "ab"
        assert bodies == ["A", "B"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (-0.5, -0.5),
        ("text \ud800 ü", "text \ud800 ü"),
        ((1, (2,)), [1, [2]]),
        ({1: {None: 2}}, {"1": {"null": 2}}),
        (10**40, 10**40),
    ],
)
async def test_a_result_is_what_a_replay_would_read(wf: Workflows, value: Any, read: Any) -> None:
    results: list[Any] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        results.append(await step.run("a", give, value))

    async with connected(wf) as stream:
        stream.execute("w")
        await finish(stream)
        assert results == [read]
        assert type(results[0]) is type(read)


async def test_memoized_steps_are_recalled_without_an_op(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        return [await step.run("add", give, 0), await step.run("add", give, 2), await step.run("add:1", give, 3)]

    async with connected(wf) as stream:
        stream.execute("w", {"add": {"status": "completed", "output": 1}})
        op = await stream.op()
        assert (op.id, op.number) == ("add:1", 1)
        stream.ack(op)
        op = await stream.op()
        assert op.id == "add:1:1"
        stream.ack(op)
        assert (await finish(stream)).fields["output"] == [1, 2, 3]


async def test_the_engines_result_counts_where_it_sends_one(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        sent = await step.send_event("tell", {"name": "order.done"})
        await step.sleep("nap", 0)
        try:
            await step.run("large", give, "x")
        except StepError as error:
            return [sent, error.name, error.message, error.step_id, error.stack]
        return []

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.fields["op"], op.last) == ("send_event", False)
        stream.ack(op, {"status": "completed", "output": {"ids": ["01J"]}})
        op = await stream.op()
        assert (op.fields["op"], op.last) == ("sleep", False), "a sleep of nothing is answered at once"
        stream.ack(op, {"status": "completed", "output": None})
        stream.ack(await stream.op(), FAILED)
        end = await finish(stream)
        assert end.fields["output"] == [{"ids": ["01J"]}, "Declined", "no money", "large", "at bank"]


async def test_a_failed_step_that_is_final_raises_and_the_code_goes_on(
    wf: Workflows, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError("no")

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        try:
            await step.options(retries=0).run("charge", fail)
        except StepError as error:
            return f"{error.name}, {await step.run('refund', give, 'refunded')}"
        return "charged"

    async with connected(wf) as stream:
        stream.execute("w", attempt=2)
        op = await stream.op()
        assert (op.fields["op"], op.fields["max_attempts"], op.last) == ("step_failed", 1, False)
        assert op.fields["error"]["name"] == "ValueError"
        stream.ack(op, FAILED)
        assert (await finish(stream)).fields["output"] == "Declined, refunded"
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    (line,) = lines
    told, *traceback = line.splitlines()
    assert told == f"workflow w, run {RUN_ID}, step charge: attempt 3 failed: ValueError: no"
    assert (traceback[0], traceback[-1]) == ("Traceback (most recent call last):", "ValueError: no")
    assert "in fail" in traceback[1]


async def test_what_the_workflow_raises_fails_the_run(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", give, 1)
        raise KeyError("after")

    async with connected(wf) as stream:
        stream.execute("w")
        end = await finish(stream)
        assert (end.fields["op"], end.fields["error"]["name"], end.last) == ("run_failed", "KeyError", True)


async def test_gathered_steps_run_side_by_side_and_go_on_in_call_order(wf: Workflows) -> None:
    meeting = asyncio.Barrier(3)
    seen: list[str] = []

    async def body(name: str) -> str:
        await meeting.wait()
        return name

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[str]:
        async def branch(part: Awaitable[str]) -> str:
            result = await part
            seen.append(result)
            return result

        return list(await asyncio.gather(*(branch(step.run("part", body, name)) for name in "abc")))

    async with connected(wf) as stream:
        stream.execute("w")
        ops = await stream.ops(3)
        assert {step_id: op.fields["output"] for step_id, op in ops.items()} == {
            "part": "a",
            "part:1": "b",
            "part:2": "c",
        }
        assert not any(op.last for op in ops.values())
        for step_id in ("part:2", "part", "part:1"):
            stream.ack(ops[step_id])
        assert (await finish(stream)).fields["output"] == ["a", "b", "c"]
        assert seen == ["a", "b", "c"], "as in a replay, though they were acknowledged otherwise"


async def test_sync_functions_of_an_async_workflow_run_side_by_side_in_threads(wf: Workflows) -> None:
    meeting = threading.Barrier(2, timeout=10)

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return len(await asyncio.gather(step.run("a", meeting.wait), step.run("b", meeting.wait)))

    async with connected(wf) as stream:
        stream.execute("w")
        for op in (await stream.ops(2)).values():
            stream.ack(op)
        assert (await finish(stream)).fields["output"] == 2
    wf.close()


async def test_an_op_that_is_acknowledged_twice_is_acknowledged_once(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        return [await step.run("a", give, 1), await step.run("b", give, 2)]

    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        stream.ack(op)
        stream.ack(op, outcome=2, step={"status": "completed", "output": "something else"})
        assert (await finish(stream)).fields["output"] == [1, 2]


async def test_acknowledgements_of_strangers_are_ignored(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        return await step.run("a", give, 1)

    async with connected(wf) as stream:
        key = stream.execute("w")
        op = await stream.op()
        for other in ({"epoch": 2}, {"invocation": 2}, {"run_id": "01J0000000000000000000000Z"}):
            wrong = type(key)(run_id=key.run_id, epoch=key.epoch, invocation=key.invocation)
            for name, value in other.items():
                setattr(wrong, name, value)
            stream.ack(op, FAILED, key=wrong)
        stream.ack(op)
        assert (await finish(stream)).fields["output"] == 1


async def test_the_logger_is_silent_about_what_was_logged_before(
    wf: Workflows, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "runr_workflows.workflow")

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        ctx.logger.info("begins")
        await step.run("a", give, 1)
        ctx.logger.info("between a and b")
        await step.run("b", give, 1)
        ctx.logger.info("after b")

    async with connected(wf) as stream:
        stream.execute("w", {"a": {"status": "completed", "output": 1}})
        await finish(stream)
    assert [r.getMessage() for r in caplog.records if r.name.endswith(".w")] == ["between a and b", "after b"]


async def test_a_stored_step_resets_the_attempt(wf: Workflows) -> None:
    attempts: list[int] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def body() -> None:
            attempts.append(ctx.attempt)

        await step.run("a", body)
        await step.run("b", body)

    async with connected(wf) as stream:
        stream.execute("w", attempt=2)
        await finish(stream)
        assert attempts == [2, 0]


async def test_many_invocations_share_the_stream(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[str]:
        return [await step.run("id", give, ctx.run_id), await step.run("again", give, ctx.run_id)]

    runs = [f"01J{number:023}" for number in range(50)]
    async with connected(wf) as stream:
        for run_id in runs:
            stream.execute("w", run_id=run_id)
        ended: dict[str, Any] = {}
        while len(ended) < len(runs):
            op = await stream.op()
            stream.ack(op)
            if op.last:
                ended[op.message.key.run_id] = op.fields["output"]
        assert ended == {run_id: [run_id, run_id] for run_id in runs}


async def test_the_trace_context_of_an_invocation(wf: Workflows) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> dict[str, str]:
        assert ctx.traceparent == parent
        return dict(ctx.trace_context)

    async with connected(wf) as stream:
        stream.execute("w", traceparent=parent)
        assert (await finish(stream)).fields["output"] == {"traceparent": parent}
        stream.execute("w", traceparent=parent, tracestate="a=1", epoch=2, chunk=40)
        assert (await finish(stream)).fields["output"] == {"traceparent": parent, "tracestate": "a=1"}
