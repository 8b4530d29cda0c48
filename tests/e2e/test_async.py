"""`async def` workflows: gathered steps run in call order, each once."""

from __future__ import annotations

import asyncio
from typing import Any

from runr_workflows import AsyncStep, Context, StepError, Workflows

from tests.support.rest import Rest, steps_of
from tests.support.workflow_app import Bodies, serving


def concurrent(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("gathering", retries=0)
    async def gathering(ctx: Context, step: AsyncStep) -> dict[str, Any]:
        async def fetch(n: int) -> int:
            bodies.record(ctx.run_id, f"fetch-{n}")
            await asyncio.sleep(0)
            if n == ctx.event["data"].get("bad"):
                raise ValueError(f"{n} is bad")
            return n * n

        def add(numbers: list[int]) -> int:
            bodies.record(ctx.run_id, "add")
            return sum(numbers)

        found = await asyncio.gather(*(step.run(f"fetch-{n}", fetch, n) for n in range(4)), return_exceptions=True)
        numbers = [each for each in found if isinstance(each, int)]
        await step.sleep("pause", "100ms")
        total = await step.run("add", add, numbers)
        return {"total": total, "bad": [str(each.message) for each in found if isinstance(each, StepError)]}


async def test_gathered_steps_run_once_each_in_call_order(rest: Rest) -> None:
    async with serving(rest, concurrent) as bodies:
        run = await rest.start("gathering")
        assert await rest.completed(run) == {"total": 14, "bad": []}
        found = await rest.run(run)
    assert list(steps_of(found)) == ["fetch-0", "fetch-1", "fetch-2", "fetch-3", "pause", "add"]
    assert [body.step for body in bodies.all] == ["fetch-0", "fetch-1", "fetch-2", "fetch-3", "add"]


async def test_a_gathered_step_that_fails_leaves_the_others(rest: Rest) -> None:
    async with serving(rest, concurrent):
        run = await rest.start("gathering", {"bad": 2})
        assert await rest.completed(run) == {"total": 10, "bad": ["2 is bad"]}
        assert steps_of(await rest.run(run))["fetch-2"] == "failed"
