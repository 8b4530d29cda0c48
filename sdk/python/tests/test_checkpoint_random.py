"""Random programs answer what they would have answered step by step, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runr_workflows import AsyncStep, Context, Step, StepError, Workflows
from sdk.python.tests.alarms import alarms
from sdk.python.tests.engine import KEY, NOW, FakeEngine, Run

Program = Any
"""A leaf: kind, step id, passes of the loop that it takes; `("seq" | "par", programs)`; `("idle", passes)`."""

_leaves = st.tuples(
    st.sampled_from(["run", "run", "run", "thread", "flaky", "fail", "send", "sleep"]),
    st.sampled_from("abc"),  # few, so that places share them and the counters matter
    st.integers(0, 3),
)
_idle = st.tuples(st.just("idle"), st.integers(0, 4))
programs = st.recursive(
    _leaves | _idle,
    lambda inner: st.tuples(st.sampled_from(["seq", "par", "apart"]), st.lists(inner, min_size=1, max_size=4)),
    max_leaves=12,
)


class Story:
    """A program as a workflow. What a body returns names its place, so that a result taken for another shows."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.executions = 0

    def register(self, wf: Workflows) -> None:
        """The workflows `in-order`, which does one thing after the other, and `together`."""

        @wf.workflow("in-order")
        def in_order(ctx: Context, step: Step) -> Any:
            return self._sync(ctx, step, self.program, "p")

        @wf.workflow("together")
        async def together(ctx: Context, step: AsyncStep) -> Any:
            return await self._async(ctx, step, self.program, "p")

    def _sync(self, ctx: Context, step: Step, program: Program, place: str) -> Any:
        kind, inner, *_ = program
        if kind in ("seq", "par", "apart"):
            return [self._sync(ctx, step, part, f"{place}.{number}") for number, part in enumerate(inner)]
        if kind == "idle":
            return None
        if kind == "send":
            return step.send_event(inner, {"name": place})["ids"]
        if kind == "sleep":
            return step.sleep(inner, "1s")
        try:
            return step.run(inner, self._body, ctx, kind, place)
        except StepError as error:
            return error.message

    async def _async(self, ctx: Context, step: AsyncStep, program: Program, place: str) -> Any:
        kind, inner, *_ = program
        if kind in ("seq", "par", "apart"):
            parts = [(part, f"{place}.{number}") for number, part in enumerate(inner)]
            if kind == "seq":
                return [await self._async(ctx, step, part, at) for part, at in parts]
            if kind == "apart":
                return [await asyncio.create_task(self._async(ctx, step, part, at)) for part, at in parts]
            return list(await asyncio.gather(*(self._started(ctx, step, part, at) for part, at in parts)))
        return await self._started(ctx, step, program, place)

    def _started(self, ctx: Context, step: AsyncStep, program: Program, place: str) -> Any:
        """Leaves have their ids at once, as in `gather(step.run(…), step.run(…))`."""
        kind, inner, *rest = program
        if kind in ("seq", "par", "apart"):
            return self._async(ctx, step, program, place)
        if kind == "idle":
            return _idle_for(inner)
        if kind == "send":
            return step.send_event(inner, {"name": place})
        if kind == "sleep":
            return step.sleep(inner, "1s")
        if kind == "thread":
            return step.run(inner, self._body, ctx, kind, place)
        return _caught(step.run(inner, self._async_body, ctx, kind, place, rest[0]))

    async def _async_body(self, ctx: Context, kind: str, place: str, passes: int) -> str:
        await _idle_for(passes)
        return self._body(ctx, kind, place)

    def _body(self, ctx: Context, kind: str, place: str) -> str:
        self.executions += 1
        if kind == "fail" or (kind == "flaky" and ctx.attempt == 0):
            raise ValueError(f"{place} fails")
        return place


async def _idle_for(passes: int) -> None:
    for _ in range(passes):
        await asyncio.sleep(0)


async def _caught(call: Any) -> Any:
    try:
        return await call
    except StepError as error:
        return error.message


@pytest.mark.parametrize("passes", range(10))
def test_code_that_takes_its_time_between_steps_keeps_its_results(passes: int) -> None:
    """A chain that waits while another executes is late when it is replayed: there the other one takes no time."""
    first = ("seq", [("run", "a", 3), ("idle", 2), ("run", "a", 0)])
    second = ("seq", [("idle", passes), ("run", "a", 0)])
    compare(("par", [first, second]), 50, "together", seed=0)


@settings(max_examples=150, deadline=None)
@given(
    program=programs,
    max_ops=st.sampled_from([2, 3, 50]),
    workflow=st.sampled_from(["in-order", "together"]),
    seed=st.integers(0, 2**32),
)
def test_several_ops_come_to_the_same_as_one(program: Program, max_ops: int, workflow: str, seed: int) -> None:
    compare(program, max_ops, workflow, seed)


def compare(program: Program, max_ops: int, workflow: str, seed: int) -> None:
    """Runs it step by step, in answers of up to `max_ops`, and so that some of these are lost."""
    story = Story(program)
    wf = Workflows(signing_key=KEY, clock=lambda: NOW)
    story.register(wf)
    engine = FakeEngine(wf.handle_request, retries=2)
    luck = random.Random(seed)
    losses: list[int] = []

    def loses(number: int) -> bool:
        if luck.random() < 0.25:
            losses.append(number)
        return losses[-1:] == [number]

    try:
        with alarms() as told:
            plain = engine.run(workflow, most=500)
            steps_of_plain = story.executions
            several = engine.run(workflow, most=500, max_ops=max_ops)
            lossy = engine.run(workflow, most=500, max_ops=max_ops, loses=loses)
    finally:
        wf.close()

    assert told == [], "steps of code that has not changed are all asked for"
    for run in (several, lossy):
        assert list(run.steps.items()) == list(plain.steps.items())
        assert (run.status, run.output, _ops(run)) == (plain.status, plain.output, _ops(plain))
    assert several.answers <= plain.answers
    assert lossy.answers - len(losses) <= plain.answers
    assert story.executions <= 3 * steps_of_plain + len(losses) * max_ops


def _ops(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in op.items() if key != "duration_ms"} for op in run.ops]
