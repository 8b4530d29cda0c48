"""One replay core: any workflow gives the same ops as `def` and as `async def`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runr_workflows import AsyncStep, Context, NonRetriableError, Step, StepError, Workflows
from sdk.python.tests.engine import KEY, NOW, FakeEngine

actions = st.lists(
    st.tuples(
        st.sampled_from(["run", "fail", "final", "sleep", "wait", "invoke", "send"]),
        st.sampled_from(["a", "b", "a:1", "é"]),
        st.booleans(),
    ),
    max_size=8,
)


def failing(error: type[Exception]) -> Callable[[], None]:
    """A body that raises."""

    def body() -> None:
        raise error("no")

    return body


def counting(step_id: str, bodies: list[str]) -> int:
    """A body that leaves a trace."""
    bodies.append(step_id)
    return len(bodies)


def call(step: Any, kind: str, step_id: str, bodies: list[str]) -> Any:
    """The step call of an action: its result, or an awaitable of it."""
    match kind:
        case "run":
            return step.run(step_id, counting, step_id, bodies)
        case "fail":
            return step.run(step_id, failing(RuntimeError))
        case "final":
            return step.run(step_id, failing(NonRetriableError))
        case "sleep":
            return step.sleep(step_id, 1)
        case "wait":
            return step.wait_for_event(step_id, "e")
        case "invoke":
            return step.invoke(step_id, "sub")
        case _:
            return step.send_event(step_id, [{"name": "e"}])


@settings(max_examples=60, deadline=None)
@given(actions)
def test_sync_and_async_workflows_answer_alike(program: list[tuple[str, str, bool]]) -> None:
    wf = Workflows(signing_key=KEY, clock=lambda: NOW)
    sync_bodies: list[str] = []
    async_bodies: list[str] = []

    @wf.workflow("blocking")
    def blocking(ctx: Context, step: Step) -> list[Any]:
        results = []
        for kind, step_id, caught in program:
            try:
                results.append(call(step, kind, step_id, sync_bodies))
            except StepError as error:
                results.append(error.message)
                if not caught:
                    raise
        return results

    @wf.workflow("async")
    async def awaited(ctx: Context, step: AsyncStep) -> list[Any]:
        results = []
        for kind, step_id, caught in program:
            try:
                results.append(await call(step, kind, step_id, async_bodies))
            except StepError as error:
                results.append(error.message)
                if not caught:
                    raise
        return results

    engine = FakeEngine(wf.handle_request, retries=1)
    one, other = engine.run("blocking"), engine.run("async")
    wf.close()

    assert one.kinds == other.kinds
    assert (one.status, one.output) == (other.status, other.output)
    assert sync_bodies == async_bodies
    assert len({step_id for _, step_id in one.kinds}) == len(one.steps)
