"""`wf.connect()` against the real engine: what a worker of the Python SDK and the executor make of one another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from runr_workflows import AsyncStep, Context, InvokeError, Step, StepError, Workflows

from tests.support.cli import Shell
from tests.support.cuttable import cuttable
from tests.support.rest import Rest, steps_of
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.waiting import until

pytestmark = only_over("stream", because="the worker of the SDK is the subject")


@asynccontextmanager
async def working(stack: Stack, wf: Workflows, *, url: str = "", max_concurrency: int = 100) -> AsyncIterator[None]:
    """A worker of the project of the newest tenant."""
    tenant = await stack.value("select slug from rt.tenant order by id desc limit 1")
    address = url or stack.executor_address
    async with wf.connection(address, tenant=tenant, drain_seconds=5, max_concurrency=max_concurrency):
        yield


async def registry(rest: Rest) -> Workflows:
    """A registry with the project's key."""
    key = (await rest.ok("GET", "/projects/default/workflows/app/signing-key"))["signing_key"]
    return Workflows(signing_key=key, signing_key_fallback="")


async def test_a_run_of_steps_sleeps_waits_children_and_events(stack: Stack, rest: Rest) -> None:
    wf, ran = await registry(rest), []

    async def body(name: str) -> str:
        ran.append(name)
        return name

    @wf.workflow("child")
    def child(ctx: Context, step: Step) -> Any:
        return step.run("double", lambda: ctx.event["data"]["n"] * 2)

    @wf.workflow("failing", retries=0)
    def failing(ctx: Context, step: Step) -> Any:
        raise ValueError("no")

    @wf.workflow("all")
    async def everything(ctx: Context, step: AsyncStep) -> dict[str, Any]:
        first = await step.run("first", body, "first")
        await step.sleep("nap", "100ms")
        await step.sleep("nothing", 0)
        calls = (step.invoke("child", child, data={"n": 21}), step.run("beside", body, "beside"))
        both = list(await asyncio.gather(*calls))
        try:
            await step.invoke("failing", failing)
        except InvokeError as error:
            both.append(error.message)
        sent = await step.send_event("tell", {"name": "told", "data": {"run": ctx.run_id}})
        event = await step.wait_for_event("hear", "told", if_=f"async.data.run == '{ctx.run_id}'", lookback="run")
        return {"first": first, "both": both, "sent": len(sent["ids"]), "event": event and event["name"]}

    async with working(stack, wf):
        run = await rest.start("all")
        output = await rest.completed(run)
    assert output == {
        "first": "first",
        "both": [42, "beside", "the invoked run failed: no"],
        "sent": 1,
        "event": "told",
    }
    assert ran == ["first", "beside"]


async def test_retries_with_a_backoff_and_a_failure_that_is_caught(stack: Stack, rest: Rest) -> None:
    wf, attempts = await registry(rest), []

    @wf.workflow("flaky", retries=1)
    async def flaky(ctx: Context, step: AsyncStep) -> Any:
        async def body() -> str:
            attempts.append(ctx.attempt)
            if ctx.attempt == 0:
                raise ValueError("not yet")
            return "done"

        async def fail() -> None:
            raise RuntimeError("never")

        first = await step.run("flaky", body)
        try:
            await step.options(retries=0).run("never", fail)
        except StepError as error:
            return [first, error.name]

    async with working(stack, wf):
        run = await rest.start("flaky")
        assert await rest.completed(run) == ["done", "RuntimeError"]
    assert attempts == [0, 1]
    assert steps_of(await rest.run(run)) == {"flaky": "completed", "never": "failed"}


async def test_what_comes_while_a_step_executes_lets_the_step_beside_it_go_on(stack: Stack, rest: Rest) -> None:
    wf, gate, begun = await registry(rest), asyncio.Event(), asyncio.Event()
    come: list[Any] = []

    @wf.workflow("child")
    async def child(ctx: Context, step: AsyncStep) -> str:
        return "child"

    @wf.workflow("beside")
    async def beside(ctx: Context, step: AsyncStep) -> list[Any]:
        async def blocked() -> str:
            begun.set()
            await gate.wait()
            return "long"

        async def heard(waiting: Awaitable[Any]) -> Any:
            come.append(await waiting)
            if len(come) == 3:
                gate.set()

        waiting = (step.wait_for_event("hear", "told"), step.invoke("child", child), step.sleep("nap", "50ms"))
        *_, last = await asyncio.gather(*map(heard, waiting), step.run("blocked", blocked))
        return [last, "child" in come]

    async with working(stack, wf):
        run = await rest.start("beside")
        await asyncio.wait_for(begun.wait(), 30)
        await until(lambda: stack.value("select count(*) from rt.wait where event = 'told'"))
        await rest.send("told")
        assert await rest.completed(run) == ["long", True]
        assert (await rest.run(run))["attempts"] == []


async def test_many_runs_of_sync_and_async_code_side_by_side(stack: Stack, rest: Rest) -> None:
    wf = await registry(rest)
    ran: list[tuple[str, int]] = []

    def body(run: str, n: int) -> int:
        ran.append((run, n))
        return n

    async def async_body(run: str, n: int) -> int:
        return body(run, n)

    @wf.workflow("threads")
    def threads(ctx: Context, step: Step) -> int:
        return sum(step.run("add", body, ctx.run_id, n) for n in range(5))

    @wf.workflow("loop")
    async def loop(ctx: Context, step: AsyncStep) -> int:
        return sum(await asyncio.gather(*(step.run("add", async_body, ctx.run_id, n) for n in range(5))))

    async with working(stack, wf, max_concurrency=10):
        runs = await asyncio.gather(*(rest.start(name) for name in ("threads", "loop") for _ in range(20)))
        assert await asyncio.gather(*map(rest.completed, runs)) == [10] * 40
    assert sorted(ran) == sorted((run, n) for run in runs for n in range(5))


async def test_a_worker_that_leaves_hands_its_run_over_to_the_next(stack: Stack, rest: Rest) -> None:
    wf, gate, begun = await registry(rest), asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @wf.workflow("long")
    async def long(ctx: Context, step: AsyncStep) -> list[str]:
        async def body(name: str) -> str:
            ran.append(name)
            begun.set()
            await gate.wait()
            return name

        return [await step.run("one", body, "one"), await step.run("two", body, "two")]

    async with working(stack, wf):
        run = await rest.start("long")
        await asyncio.wait_for(begun.wait(), 30)
        asyncio.get_running_loop().call_later(0.2, gate.set)
    assert ran == ["one"]
    async with working(stack, wf):
        assert await rest.completed(run) == ["one", "two"]
    assert ran == ["one", "two"]


async def test_a_cancelled_run_is_unwound(stack: Stack, rest: Rest) -> None:
    wf, begun, cancelled = await registry(rest), asyncio.Event(), asyncio.Event()

    @wf.workflow("endless")
    async def endless(ctx: Context, step: AsyncStep) -> None:
        async def body() -> None:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()

        await step.run("endless", body)

    async with working(stack, wf):
        run = await rest.start("endless")
        await asyncio.wait_for(begun.wait(), 30)
        await rest.ok("POST", f"/runs/{run}/cancel")
        await asyncio.wait_for(cancelled.wait(), 30)
        assert (await rest.end(run))["status"] == "cancelled"


async def test_connections_that_break_repeat_no_step(stack: Stack, rest: Rest) -> None:
    wf = await registry(rest)
    ran: Counter[tuple[str, int]] = Counter()

    @wf.workflow("chain")
    async def chain(ctx: Context, step: AsyncStep) -> int:
        async def body(n: int) -> int:
            ran[ctx.run_id, n] += 1
            await asyncio.sleep(0.01)
            return n

        return sum([await step.run("add", body, n) for n in range(20)])

    def has_begun(count: int) -> bool:
        return ran.total() >= count

    async with cuttable(f"http://{stack.executor_address}") as (url, cut), working(stack, wf, url=url):
        runs = await asyncio.gather(*(rest.start("chain") for _ in range(10)))
        for _ in range(5):
            enough = ran.total() + 20
            await until(partial(has_begun, enough))
            cut()
        assert await asyncio.gather(*map(rest.completed, runs)) == [190] * 10
    assert ran == {(run, n): 1 for run in runs for n in range(20)}


async def test_a_run_that_no_worker_takes_says_so_within_seconds(stack: Stack, rest: Rest, tmp_path: Path) -> None:
    wf = await registry(rest)

    @wf.workflow("order")
    def order(ctx: Context, step: Step) -> str:
        return step.run("pay", lambda: "paid")

    async with working(stack, wf):
        assert await rest.completed(await rest.start("order")) == "paid"
    run = await rest.start("order")
    nobody = "waits for a worker: none is connected that serves the workflow"

    async def is_told() -> bool:
        why = (await rest.run(run))["waiting_for"]
        return bool(why == {"kind": "worker", "message": nobody})

    await until(is_told)
    shell = Shell(rest, tmp_path)
    assert f"  waiting    it {nobody}\n" in (await shell.ok("runs", "show", run)).out
    waited = await shell.runr("runs", "show", run, "--wait", "--timeout", "10")
    assert f"{run}  {nobody}\n" in waited.err
    async with working(stack, wf):
        assert await rest.completed(run) == "paid"
