"""Random programs over a stream with random accidents: each body once, results right, each invocation ended once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runr_workflows import AsyncStep, Context, StepError, Workflows
from sdk.python.tests.alarms import alarms
from sdk.python.tests.engine import KEY
from sdk.python.tests.stream_accidents import Accidents
from sdk.python.tests.stream_engine import StreamEngine

Program = Any
"""A leaf (`run`, `fail`, `send`, `sleep`), or `seq` or `par` with programs in it."""

leaves = st.sampled_from(["run", "run", "fail", "send", "sleep"])
programs = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(["seq", "par"]), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=8,
)


class Story:
    """A program as a workflow, and what its bodies did."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ran: Counter[str] = Counter()

    async def perform(self, step: AsyncStep) -> Any:
        """Interprets the program; ids are places in it."""
        return await self._perform(step, self.program, "p")

    async def _perform(self, step: AsyncStep, program: Program, place: str) -> Any:
        if program == "run":
            return await step.run(place, self._body, place, False)
        if program == "fail":
            try:
                return await step.run(place, self._body, place, True)
            except StepError as error:
                return error.message
        if program == "send":
            return (await step.send_event(place, {"name": "told"}))["ids"]
        if program == "sleep":
            return await step.sleep(place, "1s")
        kind, parts = program
        places = [(part, f"{place}.{number}") for number, part in enumerate(parts)]
        if kind == "seq":
            return [await self._perform(step, part, at) for part, at in places]
        return list(await asyncio.gather(*(self._perform(step, part, at) for part, at in places)))

    async def _body(self, place: str, fails: bool) -> str:
        self.ran[place] += 1
        await asyncio.sleep(0)
        if fails:
            raise ValueError(f"{place} fails")
        return place

    def expected(self, program: Program = None, place: str = "p") -> Any:
        """What the workflow must return."""
        program = self.program if program is None else program
        simple = {"run": place, "fail": f"{place} fails", "send": [place], "sleep": None}
        if isinstance(program, str):
            return simple[program]
        return [self.expected(part, f"{place}.{number}") for number, part in enumerate(program[1])]


async def play(program: Program, seed: int) -> None:
    story = Story(program)
    wf = Workflows(signing_key=KEY)

    @wf.workflow("w", retries=0)
    async def workflow(ctx: Context, step: AsyncStep) -> Any:
        return await story.perform(step)

    async with StreamEngine() as engine, wf.connection(engine.url, drain_seconds=0):
        accidents = Accidents(engine, seed)
        with alarms() as told:
            await accidents.run()
    assert told == [], "steps of code that has not changed are all asked for"
    output = story.expected()
    assert accidents.output == ("nothing" if output is None else output)
    assert set(story.ran.values()) <= {1}, story.ran


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, seed=st.integers(0, 2**32))
def test_each_body_runs_once_whatever_happens_to_the_stream(program: Program, seed: int) -> None:
    asyncio.run(play(program, seed))
