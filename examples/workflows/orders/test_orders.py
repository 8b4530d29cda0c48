"""Days of orders in milliseconds, with the kit for tests: `pytest`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from app import wf
from runr_workflows.testing import TestEngine, every_crash, fails, replay

ORDER = {"order_id": "o-1", "total": 42}
SHIPPED = {"order_id": "o-1", "carrier": "dhl"}
HISTORY = os.environ.get("ORDERS_HISTORY", "")


def test_an_order_that_is_shipped_by_a_bank_that_is_busy_at_first() -> None:
    engine = TestEngine(wf)
    engine.send("order.shipped", SHIPPED, after="1d")
    run = engine.run("process-order", ORDER, faults=[fails("charge-card", ConnectionError("busy"), times=4)])

    assert run.output == {"shipped": True}
    assert len(run.timeline.of("charge-card")) == 5


def test_an_order_that_is_not_shipped_is_refunded_after_three_days() -> None:
    run = TestEngine(wf).run("process-order", ORDER)

    assert run.output == {"shipped": False}
    assert [step.id for step in run.steps.values()][-2:] == ["release-stock", "refund"]


def test_an_order_is_cancelled_while_it_waits() -> None:
    engine = TestEngine(wf)
    run = engine.start("process-order", ORDER)
    engine.advance("1h")
    engine.send("order.cancelled", {"order_id": "o-2"})
    assert run.status == "waiting"
    engine.send("order.cancelled", {"order_id": "o-1"})
    assert run.status == "cancelled"


def test_the_process_may_die_after_any_step() -> None:
    def scenario(engine: TestEngine) -> None:
        engine.send("order.shipped", SHIPPED, when_waiting="shipped")
        engine.run("process-order", ORDER)

    every_crash(wf, scenario)


@pytest.mark.skipif(not HISTORY, reason="ORDERS_HISTORY names no stored run, the answer of GET /api/runs/{id}")
def test_the_code_still_goes_the_way_of_a_stored_run() -> None:
    assert replay(wf, json.loads(Path(HISTORY).read_text())).next is None
