"""What an invocation leaves behind is freed at once: a look for garbage would cost more than the invocation."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest

from runr_workflows import AsyncStep, Context, Step, Workflows
from runr_workflows.connect.async_calls import AsyncCalls
from runr_workflows.invocation import Invocation
from runr_workflows.workflow_code import WorkflowCode
from sdk.python.tests.engine import envelope, execute_request
from sdk.python.tests.stream_acks import finish
from sdk.python.tests.stream_worker import connected


@pytest.fixture
def collect() -> Iterator[Callable[[], int]]:
    """How many objects only a look for garbage can free."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield gc.collect
    gc.enable()
    gc.unfreeze()


@pytest.fixture
def workflows(wf: Workflows) -> Workflows:
    @wf.workflow("chain")
    async def chain(ctx: Context, step: AsyncStep) -> str:
        for place in "abc":
            await step.run(place, place.upper)
        return "done"

    @wf.workflow("sleep")
    async def sleep(ctx: Context, step: AsyncStep) -> None:
        await step.run("a", lambda: "a")
        await step.sleep("b", 60)

    @wf.workflow("gather")
    async def gather(ctx: Context, step: AsyncStep) -> tuple[str, str]:
        return await asyncio.gather(step.run("a", lambda: "a"), step.run("b", lambda: "b"))

    @wf.workflow("threaded")
    def threaded(ctx: Context, step: Step) -> str:
        return step.run("a", lambda: "a") + step.run("b", lambda: "b")

    return wf


@pytest.mark.parametrize("memoized", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["chain", "sleep", "gather", "threaded"])
@pytest.mark.parametrize("more", [{}, {"max_ops": 3}])
async def test_an_invocation_leaves_no_garbage(
    workflows: Workflows, collect: Callable[[], int], name: str, memoized: int, more: dict[str, int]
) -> None:
    ids = "abc"[:memoized]
    body = envelope(execute_request(name, {id: {"status": "completed", "output": id} for id in ids}, **more))
    for _ in range(2):  # the first one also makes what stays
        collect()
        status, answer = await workflows.handle_request_async(body, {})
        assert status == 200, answer
        await asyncio.sleep(0)
    assert collect() == 0


@pytest.mark.parametrize("name", ["chain", "sleep", "gather"])
async def test_an_invocation_of_a_worker_leaves_no_garbage(
    workflows: Workflows, collect: Callable[[], int], name: str
) -> None:
    async with connected(workflows) as stream:
        collect()
        stream.execute(name)
        await finish(stream)
        await stream.heard()
        kept = [each for each in gc.get_objects() if type(each) in (AsyncCalls, Invocation, WorkflowCode)]

    assert [type(each).__name__ for each in kept] == []
