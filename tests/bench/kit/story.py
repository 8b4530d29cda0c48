"""A test of a month's workflow with the Python test kit, many times: its milliseconds as a line of JSON."""

from __future__ import annotations

import json
import time
from typing import Any

from runr_workflows import Context, Step, Workflows
from runr_workflows.testing import TestEngine, fails

_TIMES = 20

Order = dict[str, Any]


def order(ctx: Context, step: Step) -> list[Any]:
    """Pays, sleeps 30 days, and waits for two events."""
    paid = step.run("charge", lambda: "paid")
    step.sleep("cool-off", "30d")
    packed = step.wait_for_event("packed", "order.packed", match="data.order_id", timeout="1d")
    shipped = step.wait_for_event("shipped", "order.shipped", match="data.order_id", timeout="3d")
    return [paid, packed is not None, shipped is not None]


def test(wf: Workflows) -> None:
    """One test: the step is tried six times, and both events come."""
    engine = TestEngine(wf)
    engine.send("order.packed", {"order_id": "o-1"}, when_waiting="packed")
    engine.send("order.shipped", {"order_id": "o-1"}, when_waiting="shipped")
    run = engine.run("order", {"order_id": "o-1"}, faults=[fails("charge", times=5)])
    if run.output != ["paid", True, True]:
        raise RuntimeError(f"the run is {run.status}: {run.output}")


def main() -> None:
    """Each test is timed; the first one includes what is loaded late."""
    wf = Workflows()
    wf.workflow("order", retries=5, timeout="60d")(order)
    taken_ms: list[float] = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        test(wf)
        taken_ms.append((time.perf_counter() - began) * 1_000)
    wf.close()
    print(json.dumps(taken_ms))


if __name__ == "__main__":
    main()
