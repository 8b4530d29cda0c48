"""Places an order, ships it, and waits for what becomes of it: `python place_order.py ORDER TOTAL`.

RUNR_API_URL and RUNR_TOKEN say where; ORDERS_PROJECT names the project, `default` by default.
"""

from __future__ import annotations

import sys

from app import process_order, setting
from runr_workflows.client import Client, RunFailed


def main(order_id: str = "o-1", total: str = "42") -> None:
    """One run for each order, however often it is placed."""
    with Client(project=setting("ORDERS_PROJECT", "default")) as client:
        order = {"order_id": order_id, "total": float(total)}
        run = client.start(process_order, order, key=order_id)
        print(f"started {run.id}" if run.is_new else f"{order_id} was placed before: {run.id}")
        client.send("order.shipped", {"order_id": order_id, "carrier": "dhl"}, id=f"shipped-{order_id}")
        try:
            print("shipped" if run.result("5m")["shipped"] else "refunded")
        except RunFailed as failed:
            print(f"{failed.status}: {failed.error['message'] if failed.error else 'no error is known'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
