"""Checked by mypy, never run: what user code may rely on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from runr_workflows import AsyncStep, Context, Event, Middleware, Step, StepInfo, Workflows
from runr_workflows.client import AsyncClient, AsyncRunHandle, Client, Run, RunDetail, RunHandle, SentEvent
from runr_workflows.testing import Sent, TestEngine, TestRun, every_crash, fails, replay, returns


class Sealed(Middleware):
    def step_starts(self, step: StepInfo) -> None:
        assert_type(step.attempt, int)

    async def encode(self, value: Any, where: str) -> dict[str, Any]:
        return {"sealed": value}


wf = Workflows(middleware=[Sealed()])


@dataclass
class Card:
    number: str


def charge(card: Card, *, amount: int) -> dict[str, int]:
    return {"amount": amount}


async def fetch(url: str) -> bytes:
    return url.encode()


@wf.workflow("orders", triggers=[{"event": "order.created", "if": "event.data.ok"}, {"cron": "0 9 * * *"}], retries=4)
def orders(ctx: Context, step: Step) -> dict[str, bool]:
    assert_type(step.run("charge", charge, Card("1"), amount=5), dict[str, int])
    assert_type(step.options(retries=0).run("len", len, "abc"), int)
    assert_type(step.run("lambda", lambda: 1.5), float)
    assert_type(step.wait_for_event("shipped", "order.shipped", timeout="3d"), Event | None)
    assert_type(step.send_event("tell", [{"name": "order.done", "data": {"n": 1}}]), dict[str, list[str]])
    assert_type(step.invoke("child", child, data={"n": 1}), int)
    assert_type(step.invoke("self", orders, timeout="1h"), dict[str, bool])
    assert_type(step.invoke("by-name", "child", data={"n": 1}), Any)
    assert_type(ctx.event["data"], dict[str, Any])
    assert_type(ctx.event["ts"], int)
    assert_type(ctx.attempt, int)
    return {"ok": True}


@wf.workflow("child", concurrency={"limit": 5, "key": "event.data.x"}, cancel_on=[{"event": "stop"}])
async def child(ctx: Context, step: AsyncStep) -> int:
    assert_type(await step.run("fetch", fetch, "https://x.test"), bytes)
    assert_type(await step.run("charge", charge, Card("1"), amount=5), dict[str, int])
    assert_type(await step.options(retries=1).run("fetch", fetch, "https://x.test"), bytes)
    assert_type(await step.wait_for_event("shipped", "order.shipped"), Event | None)
    both = await asyncio.gather(step.run("a", fetch, "x"), step.run("b", len, "x"))
    assert_type(both, tuple[bytes, int])
    assert_type(await step.invoke("orders", orders), dict[str, bool])
    assert_type(await step.invoke("child", child, data={"n": 1}), int)
    assert_type(await asyncio.gather(step.invoke("i", child), step.invoke("j", "child")), tuple[int, Any])
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(step.run("c", len, "x"))
    assert_type(task.result(), int)
    return 1


class Order(TypedDict):
    order_id: str
    total: int


class Shipped(TypedDict):
    carrier: str


def receipt_of(order: Order) -> str:
    return order["order_id"]


@wf.workflow("receipt", triggers=[{"event": "order.paid"}])
def receipt(ctx: Context[Order], step: Step) -> str:
    assert_type(ctx.event, Event[Order])
    assert_type(ctx.event["data"]["total"], int)
    shipped: Event[Shipped] | None = step.wait_for_event("shipped", "order.shipped", match="data.order_id")
    if shipped is not None:
        assert_type(shipped["data"]["carrier"], str)
    return step.run("print", receipt_of, ctx.event["data"])


@wf.workflow("receipt-async", triggers=[{"event": "order.paid"}])
async def receipt_async(ctx: Context[Order], step: AsyncStep) -> str:
    shipped: Event[Shipped] | None = await step.wait_for_event("shipped", "order.shipped", match="data.order_id")
    if shipped is not None:
        assert_type(shipped["data"]["carrier"], str)
    assert_type(await step.invoke("receipt", receipt, data={"order_id": "o-1", "total": 1}), str)
    return ctx.event["data"]["order_id"]


def start_typed() -> None:
    with Client() as client:
        assert_type(client.start(receipt, {"order_id": "o-1", "total": 1}).result(), str)
    assert_type(TestEngine(wf).run(receipt_async, {"order_id": "o-1", "total": 1}).output, str)


def plain_call(ctx: Context, step: Step) -> None:
    assert_type(orders(ctx, step), dict[str, bool])


async def work() -> None:
    async with wf.connection("localhost:7103", project="shop", max_concurrency=3) as connection:
        assert_type(connection.is_connected, bool)
        connection.stop()
        await connection.wait()
    await wf.connect_async(code_version=2, drain_seconds=10, tls_ca="ca.pem")


def ask() -> None:
    with Client(project="shop", timeout="10s") as client:
        assert_type(client.send("order.created", {"n": 1}, id="e"), SentEvent)
        assert_type(client.start(orders, {"n": 1}, key="k"), RunHandle[dict[str, bool]])
        assert_type(client.start(child).result("1m"), int)
        assert_type(client.start("orders", delay="1h", tags=["a"]), RunHandle[Any])
        for run in client.runs(workflow=orders, status=["failed"]):
            assert_type(run, Run)
            assert_type(client.run(run["id"]).get(), RunDetail)
            assert_type(run["error"]["message"] if run["error"] else None, str | None)


async def test_async() -> None:
    engine = TestEngine(wf)
    assert_type((await engine.run_async(child)).output, int)
    assert_type(await engine.start_async(orders), TestRun[dict[str, bool]])


async def ask_async() -> None:
    async with AsyncClient() as client:
        run = await client.start(child, {"n": 1})
        assert_type(run, AsyncRunHandle[int])
        assert_type(await run.result(), int)
        assert_type(await (await run.replay(from_step="a")).result(), int)
        assert_type([each["id"] async for each in client.events(name="order.")], list[str])


def test() -> None:
    engine = TestEngine(wf, faults=[returns("len", 5)], stubs={"child": 1}, crash_after=3)
    assert_type(engine.run("orders", {"n": 1}, faults=[fails("charge", ValueError("no"), times=2)]), TestRun[Any])
    assert_type(engine.run(orders, {"n": 1}).output, dict[str, bool])
    assert_type(engine.finish(engine.start(child, delay="1h")), TestRun[int])
    assert_type(engine.send("order.created"), Sent)
    assert_type(engine.send("order.created", when_waiting="shipped"), Sent | None)
    assert_type(every_crash(wf, lambda engine: engine.run("orders")), int)
    assert_type(replay(wf, engine.runs[0].history).called, list[str])
    with Client() as client:
        replay(wf, client.run("01R").get())
