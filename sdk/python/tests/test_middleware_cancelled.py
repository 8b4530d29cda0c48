"""What user code gives up once the body of a step has ended is recorded all the same."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, Token
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, InvocationOutcome, Middleware, NonRetriableError, StepInfo, StepOutcome
from runr_workflows.endpoint import Endpoint
from runr_workflows.middleware import Where
from runr_workflows.testing import TestEngine
from sdk.python.tests.engine import execute_request
from sdk.python.tests.hooked_app import app, close_all
from sdk.python.tests.racing import TRANSPORTS, WAYS, Moment, Transport, Way, by_a_group, over_stream, racing


class Slow(Middleware):
    """Takes its time in one hook of the step `pay`, in which the code gives up."""

    def __init__(self, moment: Moment, hook: str) -> None:
        self._moment = moment
        self._hook = hook
        self.ends: list[str] = []

    async def step_starts(self, step: StepInfo) -> None:
        if self._hook == "step_starts" and step.id == "pay":
            await self._moment.comes()

    async def encode(self, value: Any, where: Where) -> Any:
        if self._hook == "encode" and value == "paid":
            await self._moment.comes()
        return value

    async def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
        if step.id == "pay":
            if self._hook == "step_ends":
                await self._moment.comes()
            self.ends.append(outcome.status)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hook", ["encode", "step_ends"])
def test_what_a_body_has_done_is_recorded_when_user_code_gives_up_later(
    hook: str, way: Way, transport: Transport
) -> None:
    moment, paid = Moment(), []

    async def pay() -> str:
        paid.append(1)
        return "paid"

    slow = Slow(moment, hook)
    assert transport(racing(way, moment, pay, slow)) == ["done", "paid", "done"]
    assert (len(paid), slow.ends, moment.has_come) == (1, ["completed"], True)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("way", WAYS)
def test_so_is_that_it_has_failed(way: Way, transport: Transport) -> None:
    moment, tried = Moment(), []

    async def pay() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("no money")
        return "paid"

    slow = Slow(moment, "step_ends")
    assert transport(racing(way, moment, pay, slow)) == ["done", "paid", "done"]
    assert (len(tried), slow.ends) == (2, ["failed", "completed"])


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("way", WAYS[:4])
@pytest.mark.parametrize("hook", ["step_starts", "body"])
def test_a_body_that_has_not_ended_is_given_up(hook: str, way: Way, transport: Transport) -> None:
    moment, paid = Moment(often=True), []

    async def pay() -> str:
        if hook == "body":
            await moment.comes()
        paid.append(1)
        return "paid"

    assert transport(racing(way, moment, pay, Slow(moment, hook))) == ["done", "given up", "done"]
    assert paid == []


@pytest.mark.parametrize("way", WAYS)
def test_over_a_stream_a_result_is_recorded_that_is_on_its_way(way: Way) -> None:
    moment, paid = Moment(), []

    async def pay() -> str:
        paid.append(1)
        asyncio.get_running_loop().call_soon(asyncio.ensure_future, moment.comes())
        return "paid"

    assert over_stream(racing(way, moment, pay)) == ["done", "paid", "done"]
    assert (len(paid), moment.has_come) == (1, True)


async def test_the_end_of_an_invocation_itself_is_not_held_up() -> None:
    """A server that stops cancels what it runs, and waits for it."""
    encoding, cancelled = asyncio.Event(), []

    class Endless(Middleware):
        async def encode(self, value: Any, where: Where) -> Any:
            encoding.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(where)
                raise

    wf = app(Endless())

    @wf.workflow("w")
    async def w(ctx: Context, step: AsyncStep) -> int:
        return await step.run("a", int)

    answering = asyncio.ensure_future(wf.endpoint(Endpoint).answer_async(execute_request("w", {})))
    await encoding.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(answering), 30)
    close_all()
    assert cancelled == ["step"]


async def test_a_group_that_has_given_up_a_step_ends_with_its_invocation() -> None:
    """It has cancelled its task once, does not do so again, and waits for it."""
    moment = Moment()

    async def pay() -> str:
        return "paid"

    wf = racing(by_a_group, moment, pay, Slow(moment, "encode"))
    request = execute_request("w", {"first": {"status": "completed", "output": "done"}}, max_ops=50)
    _, answer = await wf.endpoint(Endpoint).answer_async(request)
    assert (moment.has_come, b'"id":"pay"' in answer) == (True, True)
    async with asyncio.timeout(60):
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=1)
    wf.close()


@pytest.mark.parametrize("hook", ["encode", "invocation_ends"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_after_the_function_changes_nothing(hook: str, fails: bool) -> None:
    """For example one of a timer that the function has started and left behind."""
    tasks: list[Any] = []
    reached: list[str] = []

    class Late(Middleware):
        async def encode(self, value: Any, where: Where) -> Any:
            if hook == "encode" and where == "run":
                await self._cancelled()
            return value

        async def invocation_ends(self, ctx: Context, outcome: InvocationOutcome) -> None:
            if hook == "invocation_ends":
                await self._cancelled()

        async def _cancelled(self) -> None:
            reached.append(hook)
            tasks[0].cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    wf = app(Late())

    @wf.workflow("w", retries=0)
    async def w(ctx: Context, step: AsyncStep) -> int:
        tasks.append(asyncio.current_task())
        if fails:
            raise NonRetriableError("no")
        return 5

    run = TestEngine(wf).run("w")
    close_all()
    if fails:
        assert (run.status, run.error and run.error["message"]) == ("failed", "no")
    else:
        assert (run.status, run.output, reached) == ("completed", 5, [hook])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_hooks_of_a_step_and_its_body_share_context_variables(transport: Transport) -> None:
    span: ContextVar[str] = ContextVar("span", default="none")
    seen: list[str] = []

    class Spans(Middleware):
        def __init__(self) -> None:
            self._tokens: dict[str, Token[str]] = {}

        async def step_starts(self, step: StepInfo) -> None:
            self._tokens[step.id] = span.set(step.id)

        async def step_ends(self, step: StepInfo, outcome: StepOutcome) -> None:
            span.reset(self._tokens[step.id])
            seen.append(span.get())

    async def pay() -> str:
        seen.append(span.get())
        return "paid"

    async def plainly(made: Any, moment: Moment) -> str:
        return str(await made)

    assert transport(racing(plainly, Moment(), pay, Spans())) == ["done", "paid", "done"]
    assert seen == ["none", "pay", "none", "none"]
