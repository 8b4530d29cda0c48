"""Random programs over a stream with accidents store and return what they do over HTTP, one step after another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runr_workflows import AsyncStep, Context, StepError, Workflows
from sdk.python.tests.alarms import alarms
from sdk.python.tests.engine import KEY, NOW, FakeEngine
from sdk.python.tests.stream_accidents import Accidents
from sdk.python.tests.stream_engine import StreamEngine

Program = Any
"""A leaf: kind, step id, passes of the loop that it takes. Else a kind and programs, or `("idle", passes)`.

`seq` one after another, `par` gathered, `group` in a TaskGroup, `apart` each in a task of its own, one after another,
`beside` the first in a task while the others go on, `tail` the others after a step that the code around has made,
`late` the first after the task of such a step, while the others go on, `both` so do the others, after the same step,
`come` each in turn as steps are done.
"""

_leaves = st.tuples(
    st.sampled_from(["run", "run", "run", "thread", "flaky", "fail", "send", "sleep"]),
    st.sampled_from("ab"),  # few, so that places share them and the counters matter
    st.integers(0, 4),
)
_idle = st.tuples(st.just("idle"), st.integers(0, 4))
_KINDS = ["seq", "par", "group", "apart", "beside", "tail", "late", "both", "come"]
programs = st.recursive(
    _leaves | _idle,
    lambda inner: st.tuples(st.sampled_from(_KINDS), st.lists(inner, min_size=1, max_size=4)),
    max_leaves=10,
)


class Story:
    """A program as a workflow. What a body returns names its place, so that a result taken for another shows."""

    def __init__(self, program: Program, middleware: Sequence[object] = ()) -> None:
        self.program = program
        self.ran: Counter[str] = Counter()
        self.wf = Workflows(signing_key=KEY, clock=lambda: NOW, middleware=middleware)

        @self.wf.workflow("w", retries=1)
        async def workflow(ctx: Context, step: AsyncStep) -> Any:
            return await self._perform(step, program, "p")

    async def _perform(self, step: AsyncStep, program: Program, place: str) -> Any:
        kind, inner, *_ = program
        if kind not in _KINDS:
            return await self._started(step, program, place)
        parts = [(part, f"{place}.{number}") for number, part in enumerate(inner)]
        if kind == "par":
            return list(await asyncio.gather(*(self._started(step, part, at) for part, at in parts)))
        if kind == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._started(step, part, at)) for part, at in parts]
            return [task.result() for task in tasks]
        if kind == "apart":
            return [await asyncio.create_task(self._started(step, part, at)) for part, at in parts]
        if kind == "beside":
            first = asyncio.create_task(self._started(step, *parts[0]))
            return [*[await self._perform(step, part, at) for part, at in parts[1:]], await first]
        if kind == "tail":
            made = step.run("a", self._async_body, "run", place, 1)
            return await asyncio.create_task(self._after(step, made, parts))
        if kind in ("late", "both"):
            made = asyncio.create_task(step.run("a", self._async_body, "run", place, 9))
            first = asyncio.create_task(self._after(step, made, parts[:1]))
            if kind == "both":
                await made
            return [*[await self._perform(step, part, at) for part, at in parts[1:]], await first]
        if kind == "come":
            return await self._as_they_come(step, parts, place)
        return [await self._perform(step, part, at) for part, at in parts]

    async def _after(self, step: AsyncStep, made: Awaitable[Any], parts: list[tuple[Program, str]]) -> Any:
        return [await made, *[await self._perform(step, part, at) for part, at in parts]]

    async def _as_they_come(self, step: AsyncStep, parts: list[tuple[Program, str]], place: str) -> list[Any]:
        names = [f"{place}:{number}" for number in range(len(parts))]
        tasks = [
            asyncio.create_task(step.run("b", self._async_body, "run", name, 9 - 3 * number))
            for number, name in enumerate(names)
        ]
        places = dict(zip(names, parts, strict=True))
        return [await self._perform(step, *places[await each]) for each in asyncio.as_completed(tasks)]

    def _started(self, step: AsyncStep, program: Program, place: str) -> Any:
        """Leaves have their ids at once, as in `gather(step.run(…), step.run(…))`."""
        kind, inner, *rest = program
        if kind in _KINDS:
            return self._perform(step, program, place)
        if kind == "idle":
            return _idle_for(inner)
        if kind == "send":
            return step.send_event(inner, {"name": place})
        if kind == "sleep":
            return step.sleep(inner, "1s")
        if kind == "thread":
            return step.run(inner, self._body, kind, place)
        if kind == "run":
            return step.run(inner, self._async_body, kind, place, rest[0])
        return _caught(step.run(inner, self._async_body, kind, place, rest[0]))

    async def _async_body(self, kind: str, place: str, passes: int) -> str:
        await _idle_for(passes)
        return self._body(kind, place)

    def _body(self, kind: str, place: str) -> str:
        self.ran[place] += 1
        if kind == "fail" or (kind == "flaky" and self.ran[place] == 1):
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


def compare(program: Program, seed: int, losses: int = 0) -> None:
    """As `_compare`; that code which has not changed asks for all of its steps is never doubted."""
    with alarms() as told:
        _compare(program, seed, losses)
    assert told == []


def _compare(program: Program, seed: int, losses: int) -> None:
    """Runs it over HTTP, over HTTP with a checkpoint, and over a stream, on which each body is executed as often unless
    something is lost.
    """
    over_http, with_checkpoint = Story(program), Story(program)
    try:
        plain = FakeEngine(over_http.wf.handle_request, retries=1).run("w", most=500)
        several = FakeEngine(with_checkpoint.wf.handle_request, retries=1).run("w", most=500, max_ops=50)
    finally:
        over_http.wf.close()
        with_checkpoint.wf.close()
    assert _seen([several.steps, several.output]) == _seen([plain.steps, plain.output])
    story = Story(program)
    try:
        accidents = asyncio.run(_play(story, seed, losses))
    finally:
        story.wf.close()
    assert _seen(accidents.memo) == _seen(plain.steps)
    # What was lost may come after what was stored: what is returned as it comes is then in that order.
    if not (losses and "come" in repr(program)):
        assert accidents.output == "nothing" if plain.output is None else _seen(accidents.output) == _seen(plain.output)
    assert losses or story.ran == over_http.ran


async def _play(story: Story, seed: int, losses: int) -> Accidents:
    async with StreamEngine() as engine, story.wf.connection(engine.url, drain_seconds=0):
        accidents = Accidents(engine, seed, losses=losses, retries=True)
        await accidents.run()
    return accidents


def _seen(value: Any) -> Any:
    """Without what an engine makes up (ids of events) and where a body failed."""
    if isinstance(value, dict):
        return {key: _seen(each) for key, each in value.items() if key not in ("ids", "stack")}
    return [_seen(each) for each in value] if isinstance(value, list) else value


_CHAINS = ("par", [("seq", [("run", "a", 3 - number), ("run", "b", 0)]) for number in range(3)])


@pytest.mark.parametrize("passes", range(4))
def test_two_who_wait_for_the_same_step(passes: int) -> None:
    """Both go on at once when it is done; in a replay the task is earlier, which comes when it is done already."""
    compare(("both", [("seq", [("idle", passes), ("run", "b", 3)]), ("idle", passes), ("run", "b", 3)]), seed=0)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs, seed=st.integers(0, 2**32), losses=st.integers(0, 3))
@example(program=("seq", [_CHAINS, ("sleep", "a", 0)]), seed=0, losses=0)
def test_a_stream_comes_to_the_same_as_requests(program: Program, seed: int, losses: int) -> None:
    compare(program, seed, losses)
