"""A body that awaits the task of another step: refused in time, where it would wait for itself for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Middleware, StepInfo, StepOutcome, Workflows
from sdk.python.tests.engine import KEY, NOW, FakeEngine

Way = Callable[[asyncio.Task[int]], Awaitable[int]]
ONE: dict[str, Any] = {}
MANY = {"max_ops": 50}


class Heard(Middleware):
    """Has the body of a step executed in a task of its own."""

    def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        pass


async def one() -> int:
    await asyncio.sleep(0.01)
    return 1


async def directly(task: asyncio.Task[int]) -> int:
    return await task


async def in_a_gathering(task: asyncio.Task[int]) -> int:
    return sum(await asyncio.gather(task, one()))


async def through_another_task(task: asyncio.Task[int]) -> int:
    return await asyncio.ensure_future(directly(task))


async def after_a_while(task: asyncio.Task[int]) -> int:
    await asyncio.sleep(0.3)
    return await task


@pytest.mark.parametrize("way", [directly, in_a_gathering, through_another_task, after_a_while])
@pytest.mark.parametrize("fields", [ONE, MANY], ids=["a step an answer", "checkpoint"])
@pytest.mark.parametrize("middleware", [[], [Heard()]], ids=["plain", "hooked"])
@pytest.mark.parametrize("begins", ["first", "later"])
def test_a_task_of_a_step_that_a_body_awaits_fails_the_run(
    way: Way, fields: dict[str, Any], middleware: list[Any], begins: str
) -> None:
    wf = Workflows(signing_key=KEY, clock=lambda: NOW, middleware=middleware)

    @wf.workflow("w", retries=3)
    async def w(ctx: Context, step: AsyncStep) -> int:
        inner: asyncio.Task[int] = asyncio.ensure_future(_made(step.run("inner", one), begins))
        return await step.run("outer", lambda: way(inner))

    run = FakeEngine(wf.handle_request).run("w", **fields)
    wf.close()
    assert (run.status, run.answers) == ("failed", 1)
    assert run.error is not None
    assert (run.error["name"], run.error["message"]) == (
        "NestedStepError",
        "step 'inner' was awaited as a task inside step 'outer': steps cannot be nested",
    )


async def _made(call: Awaitable[int], begins: str) -> int:
    if begins == "later":
        await asyncio.sleep(0.1)
    return await call


@pytest.mark.parametrize("fields", [ONE, MANY], ids=["a step an answer", "checkpoint"])
def test_slow_steps_that_are_gathered_are_none_of_that(fields: dict[str, Any]) -> None:
    wf = Workflows(signing_key=KEY, clock=lambda: NOW)

    async def slow(number: int) -> int:
        others = [asyncio.ensure_future(one()) for _ in range(3)]
        await asyncio.sleep(0.2)
        return number + sum(await asyncio.gather(*others))

    @wf.workflow("w")
    async def w(ctx: Context, step: AsyncStep) -> int:
        return sum(await asyncio.gather(*(step.run("slow", slow, number) for number in range(3))))

    run = FakeEngine(wf.handle_request).run("w", **fields)
    wf.close()
    assert (run.output, len(run.ops)) == (12, 4)
