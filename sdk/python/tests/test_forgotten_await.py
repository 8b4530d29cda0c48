"""An `await` that is forgotten: the run fails at once and names the step, and neither hangs nor tries again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Workflows
from runr_workflows.testing import TestEngine
from sdk.python.tests.engine import KEY
from sdk.python.tests.stream_acks import finish, give
from sdk.python.tests.stream_worker import connected

Body = Callable[[AsyncStep], Awaitable[Any]]
Told = tuple[str, str]


async def use(value: Any) -> Any:
    return await value


async def as_argument(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)
    return await step.run("b", use, first)


async def as_named_argument(step: AsyncStep) -> Any:
    first = step.sleep("a", "1h")
    return await step.options(retries=1).run("b", use, value=first)


async def as_a_task(step: AsyncStep) -> Any:
    first = asyncio.create_task(step.run("a", give, 1))  # type: ignore[var-annotated, arg-type]
    return await step.run("b", use, first)


async def as_a_list(step: AsyncStep) -> Any:
    return await step.run("b", give, [1, step.run("a", give, 1)])


async def as_a_gathering(step: AsyncStep) -> Any:
    return await step.run("b", use, asyncio.gather(step.run("a", give, 1), step.run("c", give, 1)))


async def awaited_in_the_body(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)

    async def body() -> Any:
        return await first

    return await step.run("b", body)


async def returned_by_the_body(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)
    return await step.run("b", lambda: first)


async def gathered_in_the_body(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)

    async def body() -> Any:
        return await asyncio.gather(first, asyncio.sleep(0))

    return await step.run("b", body)


async def swallowed_in_the_body(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)

    async def body() -> Any:
        try:
            return await asyncio.wait_for(first, 60)
        except BaseException:
            return None

    return await step.run("b", body)


async def added(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)
    return first + 1  # type: ignore[operator]


async def an_attribute(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)
    return first.amount  # type: ignore[attr-defined]


async def a_key(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)
    return {1: "one"}[first]  # type: ignore[index]


async def a_text(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)
    return await step.run("b", give, f"paid {first}")


async def in_a_group(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)

    async def add() -> Any:
        return first + 1  # type: ignore[operator]

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(add())


async def added_in_the_body(step: AsyncStep) -> Any:
    first = step.run("a", give, 1)
    return await step.run("b", lambda: first + 1)  # type: ignore[operator]


ARGUMENT = ("StepArgumentError", "step 'a' was not awaited: await it before its result is given to step 'b'")
NESTED = ("NestedStepError", "step 'a' was awaited inside step 'b': steps cannot be nested")
TAKEN = ("StepNotAwaitedError", "step 'a' was not awaited: its call was taken for its result (")
BEGUN = (as_a_task, as_a_gathering)
"""A task begins by itself."""
CASES: dict[Body, Told] = {
    as_argument: ARGUMENT,
    as_named_argument: ARGUMENT,
    as_a_task: ARGUMENT,
    as_a_list: ARGUMENT,
    as_a_gathering: ARGUMENT,
    awaited_in_the_body: NESTED,
    returned_by_the_body: NESTED,
    gathered_in_the_body: NESTED,
    swallowed_in_the_body: NESTED,
    added: TAKEN,
    an_attribute: TAKEN,
    a_key: TAKEN,
    a_text: ("StepNotAwaitedError", "step 'a' was not awaited: its call has no text"),
    in_a_group: TAKEN,
    added_in_the_body: TAKEN,
}


@pytest.fixture
def wf() -> Iterator[Workflows]:
    registry = Workflows(signing_key=KEY)
    yield registry
    registry.close()


def register(wf: Workflows, case: Body, **options: Any) -> None:
    @wf.workflow("w", **options)
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        return await case(step)


@pytest.mark.parametrize("options", [{}, {"checkpoint": {"max_steps": 10}}], ids=["one-by-one", "checkpoint"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_over_http(case: Body, options: dict[str, Any], wf: Workflows) -> None:
    register(wf, case, **options)
    run = TestEngine(wf).run("w")
    name, message = CASES[case]
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["name"], run.error["message"][: len(message)]) == (name, message)
    assert len([entry for entry in run.timeline if entry.op == "run_failed"]) == 1
    assert "a" not in run.steps or case in BEGUN


@pytest.mark.parametrize(
    "case", [case for case in CASES if case not in (*BEGUN, added_in_the_body)], ids=lambda case: case.__name__
)
async def test_over_the_worker_stream(case: Body, wf: Workflows) -> None:
    register(wf, case)
    name, message = CASES[case]
    async with connected(wf) as stream:
        stream.execute("w")
        end = await finish(stream)
        assert (end.fields["op"], end.fields["non_retriable"]) == ("run_failed", True)
        error = end.fields["error"]
        assert (error["name"], error["message"][: len(message)]) == (name, message)


async def test_a_step_whose_body_takes_a_call_for_its_result_is_not_tried_again(wf: Workflows) -> None:
    register(wf, added_in_the_body)
    async with connected(wf) as stream:
        stream.execute("w")
        op = await stream.op()
        assert (op.id, op.fields["op"], op.fields["non_retriable"]) == ("b", "step_failed", True)


@pytest.mark.parametrize("error", [ValueError("away"), TypeError("of its own")])
def test_another_error_beside_a_call_that_is_not_awaited_yet_stays_what_it_is(error: Exception, wf: Workflows) -> None:
    """Nobody can tell whether the call would have been awaited: the error is tried again, as any other."""

    async def case(step: AsyncStep) -> Any:
        step.run("a", give, 1)
        raise error

    register(wf, case, retries=1)
    run = TestEngine(wf).run("w")
    assert run.error is not None
    assert (run.error["name"], len(run.attempts)) == (type(error).__name__, 2)
