"""`kill -9` of a worker among those that execute a project's runs: it costs an attempt, and another takes over."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.support.orders import Orders
from tests.support.rest import Json
from tests.support.stack import Stack

pytestmark = pytest.mark.parametrize("transport", ["stream"])

STEP = "reserve"


def lost(runs: list[Json]) -> dict[str, list[str]]:
    """Run → names of its failed attempts, of those that have some."""
    return {run["id"]: [each["error"]["name"] for each in run["attempts"]] for run in runs if run["attempts"]}


async def held(orders: Orders) -> asyncio.Task[None]:
    """All orders are in the middle of a step."""
    orders.bodies.hold(STEP)
    placing = asyncio.create_task(orders.place())
    await orders.begun(1.0, STEP)
    return placing


async def test_what_a_killed_worker_executed_is_an_attempt_and_goes_on_with_another(orders: Orders) -> None:
    placing = await held(orders)
    victim, other = orders.workers
    victim.kill()
    await victim.ended()
    # After the grace in which it might have come back.
    await orders.bodies.until(lambda done: sum(body.step == STEP for body in done) > orders.count)
    orders.bodies.let_go()
    await placing
    runs = await orders.completed()
    assert lost(runs)
    assert len(lost(runs)) < orders.count, "the other has executed some"
    assert lost(runs) == {run["id"]: ["WorkerDisconnected"] for run in runs if run["attempts"]}
    assert orders.repeated == {(run, STEP): 2 for run in lost(runs)}
    assert other.runs


async def test_a_worker_and_its_executor_die_together(stack: Stack, orders: Orders) -> None:
    placing = await held(orders)
    victim, _ = orders.workers
    victim.kill()
    await stack.kill("executor")
    await victim.ended()
    await stack.start("executor")
    # The other worker brings along what it executes; what the dead one did waits for it in vain.
    await orders.bodies.until(lambda done: sum(body.step == STEP for body in done) > orders.count)
    orders.bodies.let_go()
    await placing
    runs = await orders.completed()
    assert 0 < len(lost(runs)) < orders.count
    assert lost(runs) == {run["id"]: ["WorkerLost"] for run in runs if run["attempts"]}
    assert orders.repeated == {(run, STEP): 2 for run in lost(runs)}


async def test_workers_come_and_go_in_order_and_cost_nothing(orders: Orders) -> None:
    placing = asyncio.create_task(orders.place(over_s=2))
    for worker, share in zip(orders.workers, (0.2, 0.6), strict=True):
        await orders.begun(share)
        worker.kill(signal.SIGTERM)
        assert await worker.ended() == 0
        worker.start()
        await worker.ready()
    await placing
    runs = await orders.completed()
    assert lost(runs) == {}
    assert not orders.repeated
