"""Random programs with middleware that takes its time: they store and return what they do without, on every way."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runr_workflows import Context, Middleware, StepInfo, StepOutcome
from sdk.python.tests.engine import FakeEngine
from sdk.python.tests.test_stream_same_as_http import Program, Story, _play, programs


class Slow(Middleware):
    """Wraps values, and gives the loop away for as long as luck says."""

    def __init__(self, seed: int, most: int) -> None:
        self._luck = random.Random(seed)
        self._most = most

    async def encode(self, value: Any, where: str) -> Any:
        await self._idle()
        return {"wrapped": value, "where": where}

    def decode(self, value: Any, where: str) -> Any:
        if not isinstance(value, dict) or "wrapped" not in value:
            return value
        assert value["where"] == where
        return value["wrapped"]

    async def invocation_starts(self, ctx: Context) -> None:
        await self._idle()

    async def step_starts(self, step: StepInfo) -> None:
        await self._idle()

    async def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        await self._idle()

    async def _idle(self) -> None:
        for _ in range(self._luck.randint(0, self._most)):
            await asyncio.sleep(0)


def unwrapped(value: Any) -> Any:
    """Without the wrappers, ids of events and stacks."""
    if isinstance(value, dict):
        if "wrapped" in value:
            return unwrapped(value["wrapped"])
        return {key: unwrapped(each) for key, each in value.items() if key not in ("ids", "stack")}
    return [unwrapped(each) for each in value] if isinstance(value, list) else value


def over_http(story: Story, **fields: Any) -> Any:
    try:
        run = FakeEngine(story.wf.handle_request, retries=1).run("w", most=500, **fields)
    finally:
        story.wf.close()
    assert run.status == "completed"
    return unwrapped([run.steps, run.output])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, seed=st.integers(0, 2**32), most=st.sampled_from([0, 1, 5]))
@example(program=("par", [("seq", [("run", "a", 1), ("run", "b", 0)]) for _ in range(3)]), seed=0, most=5)
def test_slow_middleware_changes_nothing_over_http(program: Program, seed: int, most: int) -> None:
    plain = over_http(Story(program))
    assert over_http(Story(program, middleware=[Slow(seed, most)])) == plain
    assert over_http(Story(program, middleware=[Slow(seed, most)]), max_ops=50) == plain


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, seed=st.integers(0, 2**32), most=st.sampled_from([0, 1, 5]))
def test_slow_middleware_changes_nothing_over_a_stream(program: Program, seed: int, most: int) -> None:
    steps, output = over_http(Story(program))
    story = Story(program, middleware=[Slow(seed, most)])
    try:
        accidents = asyncio.run(_play(story, seed, 1))
    finally:
        story.wf.close()
    assert unwrapped(accidents.memo) == steps
    assert accidents.output == "nothing" or unwrapped(accidents.output) == output
