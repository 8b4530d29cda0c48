"""A checkpoint through the whole stack: fewer requests, and a crash runs at most one answer's steps again."""

from __future__ import annotations

from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest, step_of, steps_of
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

STEPS = 12
MAX_STEPS = 5


def checkpointed(wf: Workflows, bodies: Bodies) -> None:
    def body(ctx: Context, number: int) -> int:
        bodies.record(ctx.run_id, f"s{number}")
        return number

    @wf.workflow("many", checkpoint={"max_steps": MAX_STEPS, "max_time": "10s"})
    def many(ctx: Context, step: Step) -> dict[str, Any]:
        total = sum(step.run(f"s{number}", body, ctx, number) for number in range(STEPS))
        step.sleep("nap", "100ms")
        return {"total": total, "after": step.run("after", body, ctx, STEPS)}


def names(first: int, last: int) -> set[str]:
    return {f"s{number}" for number in range(first, last)}


async def test_a_run_ends_as_without_a_checkpoint(rest: Rest) -> None:
    async with serving(rest, checkpointed) as bodies:
        (definition,) = (await rest.ok("GET", f"/projects/{rest.project}/workflows"))["data"]
        run = await rest.start("many")
        output = await rest.completed(run)
        found = await rest.run(run)
    assert definition["checkpoint"] == {"max_steps": MAX_STEPS, "max_time": "10s"}
    assert output == {"total": sum(range(STEPS)), "after": STEPS}
    assert list(steps_of(found)) == [*(f"s{number}" for number in range(STEPS)), "nap", "after"]
    assert set(bodies.of(run).values()) == {1}
    assert (step_of(found, "s3")["output"], found["attempts"]) == (3, [])


@only_over("http", because="a worker brings along what it executes: nothing is lost")
async def test_an_executor_that_is_killed_loses_at_most_the_answer_in_flight(stack: Stack, rest: Rest) -> None:
    async with serving(rest, checkpointed) as bodies:
        bodies.hold("s8")
        run = await rest.start("many")
        await bodies.reached(run, "s8")
        between = await rest.run(run)
        await stack.kill("executor")
        await stack.start("executor")
        await bodies.reached(run, "s5", times=2)
        bodies.let_go("s8")
        output = await rest.completed(run)
        found = await rest.run(run)
    assert set(steps_of(between)) == names(0, 5)
    assert output == {"total": sum(range(STEPS)), "after": STEPS}
    assert list(steps_of(found)) == [*(f"s{number}" for number in range(STEPS)), "nap", "after"]
    again = {step: count for step, count in bodies.of(run).items() if count > 1}
    assert set(again) <= names(5, 10)
    assert set(again.values()) == {2}
