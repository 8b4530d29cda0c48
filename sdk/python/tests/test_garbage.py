"""What an invocation leaves behind is freed at once: a look for garbage would cost more than the invocation."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest

from runr_workflows import AsyncStep, Context, Step, Workflows
from sdk.python.tests.engine import envelope, execute_request


@pytest.fixture
def collect() -> Iterator[Callable[[], int]]:
    """How many objects only a look for garbage can free."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield gc.collect
    gc.enable()


@pytest.fixture
def workflows(wf: Workflows) -> Workflows:
    @wf.workflow("chain")
    async def chain(ctx: Context, step: AsyncStep) -> str:
        for place in "abc":
            await step.run(place, place.upper)
        return "done"

    @wf.workflow("gather")
    async def gather(ctx: Context, step: AsyncStep) -> tuple[str, str]:
        return await asyncio.gather(step.run("a", lambda: "a"), step.run("b", lambda: "b"))

    @wf.workflow("threaded")
    def threaded(ctx: Context, step: Step) -> str:
        return step.run("a", lambda: "a") + step.run("b", lambda: "b")

    return wf


@pytest.mark.parametrize("memoized", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["chain", "gather", "threaded"])
async def test_an_invocation_leaves_no_garbage(
    workflows: Workflows, collect: Callable[[], int], name: str, memoized: int
) -> None:
    ids = "abc"[:memoized]
    body = envelope(execute_request(name, {id: {"status": "completed", "output": id} for id in ids}))
    for _ in range(2):  # the first one also makes what stays
        collect()
        status, answer = await workflows.handle_request_async(body, {})
        assert status == 200, answer
        await asyncio.sleep(0)
    assert collect() == 0
