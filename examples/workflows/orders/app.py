"""Orders: charge, reserve, wait out the fraud check, wait for the shipment, else refund.

Every execution of a step body leaves a line in the file that ORDERS_LOG names, so that anybody can count them: the
engine may be killed at any moment, and each step still has its effect. See README.md for the variables.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from typing import Any

from runr_workflows import Context, NonRetriableError, Step, Workflows

wf = Workflows()


@wf.workflow(
    "process-order",
    triggers=[{"event": "order.created"}],
    retries=4,
    cancel_on=[{"event": "order.cancelled", "match": "data.order_id"}],
    description="Charges an order, holds it for the fraud check, and refunds it when it is not shipped.",
)
def process_order(ctx: Context, step: Step) -> dict[str, Any]:
    """The workflow. Its code runs again for every step; the bodies below run once, or again after a crash."""
    order = ctx.event["data"]
    charge = step.run("charge-card", charge_card, order, key=f"{ctx.run_id}:charge-card")
    reservation = step.run("reserve-stock", reserve_stock, order, key=f"{ctx.run_id}:reserve-stock")
    step.sleep("fraud-check-window", setting("ORDERS_FRAUD_CHECK", "10m"))
    shipped = step.wait_for_event(
        "shipped",
        "order.shipped",
        match="data.order_id",
        timeout=setting("ORDERS_SHIPPING_TIMEOUT", "3d"),
        lookback="run",
    )
    if shipped is None:
        step.run("release-stock", release_stock, reservation, key=f"{ctx.run_id}:release-stock")
        step.run("refund", refund, charge, key=f"{ctx.run_id}:refund")
    else:
        step.run("notify", notify, order, shipped["data"], key=f"{ctx.run_id}:notify")
    return {"shipped": shipped is not None}


def charge_card(order: dict[str, Any], *, key: str) -> dict[str, Any]:
    """Takes the money. `key` makes it safe to ask the payment gateway twice."""
    record("charge-card", order.get("order_id"), key)
    total = order.get("total", 0)
    if not isinstance(total, int | float) or total < 0:
        raise NonRetriableError(f"total must be a number that is not negative, not {total!r}")
    return {"charge_id": f"ch-{order.get('order_id')}", "order_id": order.get("order_id"), "amount": total}


def reserve_stock(order: dict[str, Any], *, key: str) -> dict[str, Any]:
    """Takes the goods off the shelf, which takes as long as ORDERS_RESERVE_SECONDS says."""
    record("reserve-stock", order.get("order_id"), key)
    time.sleep(float(setting("ORDERS_RESERVE_SECONDS", "0")))
    return {"reservation_id": f"rs-{order.get('order_id')}", "order_id": order.get("order_id")}


def release_stock(reservation: dict[str, Any], *, key: str) -> None:
    """Puts the goods back."""
    record("release-stock", reservation["order_id"], key)


def refund(charge: dict[str, Any], *, key: str) -> dict[str, Any]:
    """Gives the money back."""
    record("refund", charge["order_id"], key)
    return {"refunded": charge["amount"]}


def notify(order: dict[str, Any], shipment: dict[str, Any], *, key: str) -> None:
    """Tells the customer that the order is on its way."""
    record("notify", order.get("order_id"), key)


def record(step: str, order_id: object, key: str) -> None:
    """Appends one JSON line to ORDERS_LOG, in a single write, so that lines of several processes never mix."""
    path = os.environ.get("ORDERS_LOG")
    if not path:
        return
    line = json.dumps({"step": step, "order_id": order_id, "key": key, "pid": os.getpid(), "at": time.time()})
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


def setting(name: str, default: str) -> str:
    """An environment variable; read when the workflow runs, the same for all invocations of this process."""
    return os.environ.get(name) or default


def main() -> None:
    """Serves the workflow until SIGTERM."""
    parser = argparse.ArgumentParser(description="Serves the orders workflow.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for a free one; stderr tells which")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    wf.serve(arguments.host, arguments.port)


if __name__ == "__main__":
    main()
