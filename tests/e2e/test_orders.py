"""The order of the original document: charged, held, shipped, or refunded in the end."""

from __future__ import annotations

import time
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest, step_of, steps_of
from tests.support.workflow_app import Bodies, serving


def orders(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow(
        "process-order",
        triggers=[{"event": "order.created"}],
        cancel_on=[{"event": "order.cancelled", "match": "data.order_id"}],
    )
    def process_order(ctx: Context, step: Step) -> dict[str, Any]:
        order = ctx.event["data"]

        def charge() -> dict[str, Any]:
            bodies.record(ctx.run_id, "charge-card")
            return {"charge_id": f"ch-{order['order_id']}", "amount": order["total"]}

        def reserve() -> str:
            bodies.record(ctx.run_id, "reserve-stock")
            return f"rs-{order['order_id']}"

        def refund(charge: dict[str, Any]) -> int:
            bodies.record(ctx.run_id, "refund")
            return int(charge["amount"])

        charged = step.run("charge-card", charge)
        reserved = step.run("reserve-stock", reserve)
        step.sleep("fraud-check-window", "300ms")
        shipped = step.wait_for_event(
            "shipped", "order.shipped", match="data.order_id", timeout=order.get("patience", "1h")
        )
        if shipped is None:
            return {"shipped": False, "refunded": step.run("refund", refund, charged)}
        return {"shipped": True, "by": shipped["data"]["carrier"], "reservation": reserved}


async def test_an_order_is_shipped(rest: Rest) -> None:
    async with serving(rest, orders) as bodies:
        sent = await rest.send("order.created", {"order_id": "o-1", "total": 42})
        (run,) = sent["runs"]
        waiting = await rest.becomes(run, "waiting")
        assert step_of(waiting, "shipped")["wait"]["event"] == "order.shipped"
        other = await rest.send("order.shipped", {"order_id": "o-2", "carrier": "pigeon"})
        assert other["resumed"] == 0
        shipped = await rest.send("order.shipped", {"order_id": "o-1", "carrier": "dhl"})
        assert shipped["resumed"] == 1
        found = await rest.end(run)
    assert found["output"] == {"shipped": True, "by": "dhl", "reservation": "rs-o-1"}
    assert steps_of(found) == dict.fromkeys(
        ("charge-card", "reserve-stock", "fraud-check-window", "shipped"), "completed"
    )
    assert step_of(found, "shipped")["output"]["id"] == shipped["id"]
    assert bodies.of(run) == {"charge-card": 1, "reserve-stock": 1}
    assert [attempt["error"] for step in found["steps"] for attempt in step["attempts"]] == [None] * 2


async def test_an_order_that_is_not_shipped_in_time_is_refunded(rest: Rest) -> None:
    async with serving(rest, orders) as bodies:
        began = time.monotonic()
        sent = await rest.send("order.created", {"order_id": "o-1", "total": 42, "patience": "1s"})
        (run,) = sent["runs"]
        assert await rest.completed(run) == {"shipped": False, "refunded": 42}
        assert time.monotonic() - began > 1.3
        late = await rest.send("order.shipped", {"order_id": "o-1", "carrier": "dhl"})
    assert late["resumed"] == 0
    assert bodies.of(run) == {"charge-card": 1, "reserve-stock": 1, "refund": 1}


async def test_an_order_is_cancelled_while_it_waits(rest: Rest) -> None:
    async with serving(rest, orders) as bodies:
        (run,) = (await rest.send("order.created", {"order_id": "o-1", "total": 42}))["runs"]
        await rest.becomes(run, "waiting")
        assert (await rest.send("order.cancelled", {"order_id": "o-9"}))["cancelled"] == 0
        assert (await rest.send("order.cancelled", {"order_id": "o-1"}))["cancelled"] == 1
        found = await rest.end(run)
        assert (await rest.send("order.shipped", {"order_id": "o-1", "carrier": "dhl"}))["resumed"] == 0
    assert found["status"] == "cancelled"
    assert step_of(found, "shipped")["status"] == "cancelled"
    assert bodies.of(run) == {"charge-card": 1, "reserve-stock": 1}
