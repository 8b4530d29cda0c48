"""Workflows that give a step up in every way that asyncio knows, just when something has happened, on every way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from runr_workflows import AsyncStep, Context, Workflows
from sdk.python.tests.engine import KEY, NOW, FakeEngine
from sdk.python.tests.stream_accidents import Accidents
from sdk.python.tests.stream_engine import StreamEngine

Made = Awaitable[str]


class Moment:
    """When the code gives up: what it has prepared for that is called, once or at every call of the workflow."""

    def __init__(self, *, often: bool = False) -> None:
        self._often = often
        self.give_up: Callable[[], Any] | None = None
        self.has_come = False

    async def comes(self) -> None:
        """Now, and goes on after whatever follows."""
        if self.give_up is not None and (self._often or not self.has_come):
            self.has_come = True
            self.give_up()
        for _ in range(10):
            await asyncio.sleep(0)


async def by_timeout(made: Made, moment: Moment) -> str:
    try:
        async with asyncio.timeout(None) as scope:
            moment.give_up = lambda: scope.reschedule(asyncio.get_running_loop().time())
            return await made
    except TimeoutError:
        return "given up"


async def by_cancelling_a_task(made: Made, moment: Moment) -> str:
    task = asyncio.ensure_future(made)
    moment.give_up = task.cancel
    try:
        return await task
    except asyncio.CancelledError:
        if _cancellations() > 0:  # the end of the invocation
            raise
        return "given up"


async def by_cancelling_itself(made: Made, moment: Moment) -> str:
    task = asyncio.current_task()
    assert task is not None
    moment.give_up = task.cancel
    try:
        return await made
    except asyncio.CancelledError:
        if _cancellations() > 1:
            raise
        task.uncancel()
        return "given up"


async def by_a_group(made: Made, moment: Moment) -> str:
    fails = asyncio.Event()

    async def sibling() -> None:
        await fails.wait()
        raise ValueError("no")

    async def awaits() -> str:
        return await made

    moment.give_up = fails.set
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sibling())
            task = group.create_task(awaits())
            task.add_done_callback(lambda task: None if task.cancelled() else fails.set())
    except* ValueError:
        pass
    return "given up" if task.cancelled() else task.result()


async def by_leaving(made: Made, moment: Moment) -> str:
    late = asyncio.Event()
    moment.give_up = late.set
    task, waits = asyncio.ensure_future(made), asyncio.ensure_future(late.wait())
    await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    return task.result() if task.done() else "given up"


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


Way = Callable[[Made, Moment], Awaitable[str]]
WAYS: list[Way] = [by_timeout, by_cancelling_a_task, by_cancelling_itself, by_a_group, by_leaving]


def racing(way: Way, moment: Moment, body: Callable[[], Awaitable[str]], *middleware: object) -> Workflows:
    """Workflows whose `w` pays in a step and gives that up."""
    wf = Workflows(signing_key=KEY, clock=lambda: NOW, middleware=middleware)

    @wf.workflow("w", retries=1)
    async def w(ctx: Context, step: AsyncStep) -> list[str]:
        first = await step.run("first", _first)
        paid = await way(step.run("pay", body), moment)
        return [first, paid, await step.run("last", _first)]

    return wf


async def _first() -> str:
    return "done"


def over_http(wf: Workflows, **fields: Any) -> Any:
    """The output of `w`, a step an answer."""
    try:
        return FakeEngine(wf.handle_request, retries=1).run("w", **fields).output
    finally:
        wf.close()


def with_checkpoint(wf: Workflows) -> Any:
    """The same with all steps in one answer that can be."""
    return over_http(wf, max_ops=50)


def over_stream(wf: Workflows) -> Any:
    """The same over the worker stream."""

    async def run() -> Any:
        async with StreamEngine() as engine, wf.connection(engine.url, drain_seconds=0):
            accidents = Accidents(engine, 1, retries=True)
            await accidents.run()
        return accidents.output

    try:
        return asyncio.run(run())
    finally:
        wf.close()


Transport = Callable[[Workflows], Any]
TRANSPORTS: list[Transport] = [over_http, with_checkpoint, over_stream]
