"""Which step calls go on live over the worker stream, and which wait for an invocation that comes to them first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from runr_workflows import AsyncStep, Context, Workflows
from sdk.python.tests.stream_engine import EngineStream, SentOp
from sdk.python.tests.stream_worker import connected, wf

__all__ = ["wf"]


async def give(value: Any, passes: int = 0) -> Any:
    for _ in range(passes):
        await asyncio.sleep(0)
    return value


class Told:
    """What a run told the engine. `invocations` holds, for each, the steps that it executed."""

    def __init__(self) -> None:
        self.invocations: list[list[str]] = []
        self.results: dict[str, Any] = {}
        self.output: Any = None
        self.ends: list[bool] = []
        """Of each end that was no op, whether the code is to be begun anew."""


async def run_to_end(stream: EngineStream) -> Told:
    """Acknowledges everything at once, and lets each sleep be over when the run rests in it."""
    told, memo = Told(), {}
    open_steps: list[str] = []
    while told.output is None:
        executed: list[str] = []
        told.invocations.append(executed)
        stream.execute("w", memo, invocation=len(told.invocations), open_steps=open_steps)
        again, over = False, False
        while not over:
            message = await stream.next()
            if message.WhichOneof("kind") == "end":
                again, over = message.end.again, True
                told.ends.append(again)
                continue
            op = SentOp(message.op)
            stored = None
            if op.fields["op"] == "sleep":
                open_steps.append(op.id)
            elif op.fields["op"] == "run_completed":
                told.output = op.fields["output"]
            else:
                assert op.fields["op"] == "step_completed", op.fields
                memo[op.id] = stored = {"status": "completed", "output": op.fields["output"]}
                executed.append(op.id)
            stream.ack(op, stored)
            over = op.last
        if not again:
            memo |= {step_id: {"status": "completed", "output": None} for step_id in open_steps}
            open_steps = []
        assert len(told.invocations) < 50, "the run makes no progress"
    told.results = {step_id: stored["output"] for step_id, stored in memo.items()}
    return told


async def test_gathered_chains_have_the_ids_of_a_replay(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def item(number: int) -> list[str]:
            charged = await step.run("charge", give, f"charge{number}", 3 - number)
            return [charged, await step.run("mail", give, f"mail{number}")]

        got = list(await asyncio.gather(*(item(number) for number in range(3))))
        await step.sleep("nap", "1s")
        return got

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == [[f"charge{number}", f"mail{number}"] for number in range(3)]
    assert told.invocations[:3] == [["charge"], ["mail"], ["charge:1"]], "one after another"
    assert told.results["mail:2"] == "mail2"


async def test_steps_that_the_workflow_function_gathers_go_on_live(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        first = await asyncio.gather(*(step.run("part", give, number, 3 - number) for number in range(3)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step.run("part", give, number)) for number in first]
        return [*[task.result() for task in tasks], await step.run("part", give, 3)]

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == [0, 1, 2, 3]
    assert len(told.invocations) == 1


async def test_a_chain_beside_a_step_waits_until_that_is_stored_and_the_code_is_begun_anew(wf: Workflows) -> None:
    gate = asyncio.Event()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def chain() -> list[Any]:
            return [await step.run("x", give, number) for number in (1, 2)]

        return list(await asyncio.gather(step.run("slow", gate.wait), chain()))

    async with connected(wf) as stream:
        stream.execute("w")
        await stream.heard()
        assert stream.is_silent()
        gate.set()
        slow = await stream.op()
        assert (slow.id, slow.last) == ("slow", True)
        stream.ack(slow)
        told = await run_to_end(stream)
    assert told.output == [True, [1, 2]]


async def test_where_steps_are_open_the_code_is_begun_anew_at_once(wf: Workflows) -> None:
    """The nap is the workflow function's, the chain comes after a step: it need not wait until the nap is over."""

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def chain(first: Any) -> list[Any]:
            return [await first, await step.run("x", give, 2)]

        return list(await asyncio.gather(chain(step.run("x", give, 1)), step.sleep("nap", "1h")))

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == [[1, 2], None]
    assert told.ends[0] is True
    assert told.invocations[:2] == [["x"], ["x:1"]]
    assert told.ends[-1] is False


async def test_a_task_that_waits_for_a_step_of_the_workflow_function(wf: Workflows) -> None:
    """In a replay the task comes to its `x` while the workflow function waits; here it came later."""

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def after(task: asyncio.Task[Any]) -> Any:
            await task
            return await step.run("x", give, "of the task")

        first = asyncio.create_task(step.run("a", give, None, 40))
        task = asyncio.create_task(after(first))
        await step.run("b", give, None)
        await give(None, 5)
        return [await step.run("x", give, "of the function"), await task]

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == ["of the function", "of the task"]
    assert (told.results["x"], told.results["x:1"]) == ("of the task", "of the function")


async def test_results_come_in_call_order_to_code_that_takes_them_as_they_come(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        steps = [asyncio.create_task(step.run("part", give, number, 9 - 3 * number)) for number in range(3)]
        return [await step.run("mail", give, await each) for each in asyncio.as_completed(steps)]

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == [0, 1, 2]
    assert told.results == {"part": 0, "part:1": 1, "part:2": 2, "mail": 0, "mail:1": 1, "mail:2": 2}


async def test_results_that_are_acknowledged_together_come_in_call_order(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        steps = [asyncio.create_task(step.run("part", give, number)) for number in range(3)]
        return [await step.run("mail", give, await each) for each in asyncio.as_completed(steps)]

    async with connected(wf) as stream:
        stream.execute("w")
        acks = [
            pb.EngineMessage(ack=pb.Ack(key=op.message.key, number=op.number, outcome=pb.ACK_OUTCOME_COMMITTED))
            for op in (await stream.ops(3)).values()
        ]
        stream.say(*reversed(acks))
        mail = await stream.op()
        assert (mail.id, mail.fields["output"]) == ("mail", 0)


async def test_a_call_that_is_made_and_awaited_later_has_its_turn_by_when_it_was_made(wf: Workflows) -> None:
    """Its id is given while another step is executed: what comes after that has another one in a replay."""

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def chain() -> Any:
            made = step.run("x", give, "of the task")
            await gate.wait()
            return await made

        gate = asyncio.Event()
        task = asyncio.create_task(chain())
        await step.run("a", give, None, 9)
        of_the_function = await step.run("x", give, "of the function")
        gate.set()
        return [of_the_function, await task]

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == ["of the function", "of the task"]
    assert (told.results["x"], told.results["x:1"]) == ("of the function", "of the task")


@pytest.mark.parametrize("wait_for", [asyncio.FIRST_COMPLETED, asyncio.ALL_COMPLETED])
async def test_code_that_goes_on_when_one_of_several_is_done(wf: Workflows, wait_for: str) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        tasks = [asyncio.create_task(step.run("part", give, number, 20 * number)) for number in range(2)]
        done, pending = await asyncio.wait(tasks, return_when=wait_for)
        counts = await step.run("count", give, [len(done), len(pending)])
        return [counts, *(await asyncio.gather(*tasks))]

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == [[2, 0], 0, 1], "as over HTTP: a replay sees both done"


async def test_a_step_that_user_code_gives_up_leaves_its_turn_to_the_others(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def impatient(name: str) -> Any:
            try:
                async with asyncio.timeout(0.01):
                    return await step.run(name, asyncio.sleep, 60)
            except TimeoutError:
                return f"{name} gave up"

        async def chain() -> Any:
            return await step.run("x", give, 1)

        given_up = [await impatient("main")]
        return given_up + list(await asyncio.gather(impatient("task"), chain(), step.run("y", give, 2)))

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == ["main gave up", "task gave up", 1, 2]
    assert told.results == {"x": 1, "y": 2}


async def test_a_chain_waits_for_a_step_that_is_given_up(wf: Workflows) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[Any]:
        async def chain() -> Any:
            return [await step.run("x", give, number) for number in (1, 2)]

        task = asyncio.create_task(chain())
        try:
            async with asyncio.timeout(0.01):
                await step.run("slow", asyncio.sleep, 60)
        except TimeoutError:
            return [await step.run("instead", give, 0), *await task]
        return []

    async with connected(wf) as stream:
        told = await run_to_end(stream)
    assert told.output == [0, 1, 2]
