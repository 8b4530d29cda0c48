"""Middleware for tests, and workflows under it."""

from __future__ import annotations

import asyncio
from typing import Any

from runr_workflows import (
    AsyncStep,
    Context,
    InvocationOutcome,
    Middleware,
    Step,
    StepError,
    StepInfo,
    StepOutcome,
    Workflows,
)
from runr_workflows.middleware import Where

Told = list[Any]


class Tells:
    """Tells what it is called with. Not derived from Middleware: any object will do."""

    def __init__(self, told: Told, name: str) -> None:
        self._told = told
        self._name = name

    def invocation_starts(self, ctx: Context) -> None:
        self._told.append((self._name, "invocation", ctx.workflow))

    def invocation_ends(self, ctx: Context, outcome: InvocationOutcome) -> None:
        self._told.append((self._name, outcome.status, outcome.error and dict(outcome.error)))

    def step_starts(self, step: StepInfo) -> None:
        self._told.append((self._name, step.id, step.attempt, tuple(step.args), dict(step.kwargs)))

    def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        self._told.append((self._name, step.id, outcome.status, outcome.output, repr(outcome.error)))


class TellsAsync:
    """The same, taking its time."""

    def __init__(self, told: Told, name: str) -> None:
        self._inner = Tells(told, name)

    async def invocation_starts(self, ctx: Context) -> None:
        await asyncio.sleep(0)
        self._inner.invocation_starts(ctx)

    async def invocation_ends(self, ctx: Context, outcome: InvocationOutcome) -> None:
        await asyncio.sleep(0)
        self._inner.invocation_ends(ctx, outcome)

    async def step_starts(self, step: StepInfo) -> None:
        await asyncio.sleep(0)
        self._inner.step_starts(step)

    async def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        await asyncio.sleep(0)
        self._inner.step_ends(step, outcome)


class Wraps(Middleware):
    """Stores values in a wrapper with its name, and where they are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def encode(self, value: Any, where: Where) -> Any:
        return {self.name: value, "where": where}

    def decode(self, value: Any, where: Where) -> Any:
        if not isinstance(value, dict) or self.name not in value:
            return value
        assert value["where"] == where
        return value[self.name]


class WrapsAsync(Middleware):
    """The same, taking its time: the longer, the earlier it is called."""

    def __init__(self, name: str) -> None:
        self._inner = Wraps(name)
        self._passes = 20

    async def encode(self, value: Any, where: Where) -> Any:
        await self._take_time()
        return self._inner.encode(value, where)

    def decode(self, value: Any, where: Where) -> Any:
        return self._inner.decode(value, where)

    async def _take_time(self) -> None:
        self._passes = max(self._passes - 3, 0)
        for _ in range(self._passes):
            await asyncio.sleep(0)


MADE: list[Workflows] = []


def app(*middleware: object, **options: Any) -> Workflows:
    MADE.append(Workflows(middleware=middleware, **options))
    return MADE[-1]


def double(value: int, plus: int = 0) -> int:
    return 2 * value + plus


def failing() -> None:
    raise ValueError("no")


def define(wf: Workflows, is_async: bool) -> None:
    """A step, a sleep, a step that fails for good and is caught."""

    def told(ctx: Context, step: Step) -> int:
        first = step.run("double", double, 1, plus=3)
        step.sleep("nap", "1d")
        try:
            step.options(retries=0).run("failing", failing)
        except StepError:
            return first
        raise AssertionError("it fails")

    async def told_async(ctx: Context, step: AsyncStep) -> int:
        first = await step.run("double", double, 1, plus=3)
        await step.sleep("nap", "1d")
        try:
            await step.options(retries=0).run("failing", failing)
        except StepError:
            return first
        raise AssertionError("it fails")

    wf.workflow("told")(told_async if is_async else told)


def close_all() -> None:
    """Closes what `app` has made."""
    while MADE:
        MADE.pop().close()
