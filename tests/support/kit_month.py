"""The workflow by which the test kits are measured: thirty days of sleep, two events, a step of five attempts."""

from __future__ import annotations

import time

from runr_workflows import Context, Step, Workflows
from runr_workflows.testing import TestEngine, fails

ATTEMPTS = 5


def play_month() -> float:
    """Plays it once, from the definition to the result; the seconds of CPU that it took."""
    began = time.process_time()
    wf = Workflows()

    @wf.workflow("month", retries=ATTEMPTS, timeout="60d")
    def month(ctx: Context, step: Step) -> list[int]:
        charged = step.run("charge", int, 1)
        step.sleep("month", "30d")
        events = [
            step.wait_for_event(name, f"order.{name}", match="data.id", timeout="3d") for name in ("packed", "shipped")
        ]
        return [charged, *[event["data"]["n"] for event in events if event is not None]]

    engine = TestEngine(wf)
    engine.send("order.packed", {"id": 1, "n": 2}, when_waiting="packed")
    engine.send("order.shipped", {"id": 1, "n": 3}, after="31d")
    run = engine.run("month", {"id": 1}, faults=[fails("charge", times=ATTEMPTS - 1)])
    assert (run.output, len(run.timeline.of("charge"))) == ([1, 2, 3], ATTEMPTS)
    return time.process_time() - began
