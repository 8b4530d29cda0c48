"""Several ops in one answer of an async workflow: in which order, and what has no place in it."""

from __future__ import annotations

import asyncio

from runr_workflows import AsyncStep, Context, Workflows
from sdk.python.tests.engine import FakeEngine
from sdk.python.tests.ops import done, ids


def test_an_async_workflow_goes_on_too(wf: Workflows, engine: FakeEngine) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        return await step.run("a", later, 1) + await step.run("b", int, 2)

    ops = engine.answer("w", max_ops=50)

    assert ids(ops) == [*done("a", "b"), ("run_completed", None)]
    assert ops[-1]["output"] == 3


def test_gathered_steps_run_in_call_order_in_one_answer(wf: Workflows, engine: FakeEngine) -> None:
    running: list[int] = []
    most = 0

    async def body(number: int) -> int:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        await asyncio.sleep(0.001 * (5 - number))
        running.remove(number)
        return number

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[int]:
        first = await asyncio.gather(*(step.run("s", body, number) for number in range(4)))
        return [*first, await step.run("after", body, 4)]

    ops = engine.answer("w", max_ops=50)

    assert ids(ops) == [*done("s", "s:1", "s:2", "s:3", "after"), ("run_completed", None)]
    assert (ops[-1]["output"], most) == ([0, 1, 2, 3, 4], 1)


def test_max_ops_ends_within_gathered_steps(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[int]:
        return list(await asyncio.gather(*(step.run(f"s{number}", int, number) for number in range(5))))

    run = engine.run("w", max_ops=2)

    assert (run.output, run.answers) == ([0, 1, 2, 3, 4], 3)
    assert run.kinds == done("s0", "s1", "s2", "s3", "s4")


def test_a_sleep_among_gathered_steps_has_its_turn(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run("a", int), step.sleep("nap", "1m"), step.run("b", int))

    assert ids(engine.answer("w", max_ops=50)) == [*done("a"), ("sleep", "nap")]


def test_chains_that_share_ids_are_answered_step_by_step(wf: Workflows, engine: FakeEngine) -> None:
    """Which of two chains calls next depends on what is stored: a replay would exchange their ids."""

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> list[list[str]]:
        async def body(name: str) -> str:
            await asyncio.sleep(0)
            return name

        async def chain(name: str) -> list[str]:
            return [await step.run("x", body, f"{name}{number}") for number in range(3)]

        return list(await asyncio.gather(chain("a"), chain("b")))

    plain, several = engine.run("w"), engine.run("w", max_ops=50)

    assert several.output == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    assert (several.output, several.steps) == (plain.output, plain.steps)


def test_steps_of_a_task_of_its_own_are_answered_one_by_one(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        async def helper() -> int:
            return await step.run("b", int, 1) + await step.run("c", int, 2)

        await step.run("a", int)
        return await asyncio.create_task(helper()) + await step.run("d", int, 3)

    assert ids(engine.answer("w", max_ops=50)) == done("a")
    run = engine.run("w", max_ops=50)
    assert (run.output, run.kinds) == (6, done("a", "b", "c", "d"))


def test_a_body_that_user_code_gives_up_does_not_count(wf: Workflows, engine: FakeEngine) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        await step.run("a", int)
        try:
            async with asyncio.timeout(0.01):
                await step.run("stuck", forever)
        except TimeoutError:
            await step.run("b", int)
        return "end"

    assert ids(engine.answer("w", max_ops=50)) == [*done("a", "b"), ("run_completed", None)]


def test_a_body_that_outlives_the_workflow_function_ends_the_answer(wf: Workflows, engine: FakeEngine) -> None:
    async def late() -> str:
        await asyncio.sleep(0.01)
        return "late"

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        await step.run("a", int)
        task = asyncio.ensure_future(step.run("b", late))
        await asyncio.sleep(0)
        return f"left {task.done()} behind"

    assert ids(engine.answer("w", max_ops=50)) == done("a", "b")


def test_nothing_is_left_running(wf: Workflows, engine: FakeEngine) -> None:
    left: list[str] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        try:
            await asyncio.gather(*(step.run(f"s{number}", int) for number in range(4)))
        finally:
            left.append("unwound")

    assert ids(engine.answer("w", max_ops=2)) == done("s0", "s1")
    assert left == ["unwound"]
