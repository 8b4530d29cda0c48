"""The example project, served by its own process and driven over loopback."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sdk.python.tests.engine import KEY, FakeEngine, signature

ROOT = Path(__file__).parents[3]
APP = ROOT / "examples" / "workflows" / "orders" / "app.py"
SHIPPED = {"id": "01J", "name": "order.shipped", "data": {"order_id": "o-1"}, "ts": 1}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "orders.jsonl"


@pytest.fixture
def port(log: Path) -> Iterator[int]:
    env = {
        "PYTHONPATH": str(ROOT / "sdk" / "python" / "src"),
        "RUNR_WORKFLOW_SIGNING_KEY": KEY,
        "ORDERS_LOG": str(log),
        "ORDERS_FRAUD_CHECK": "1s",
    }
    command = [sys.executable, "-W", "error", str(APP), "--port", "0"]
    process = subprocess.Popen(command, env=os.environ | env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield int(process.stderr.readline().rpartition(":")[2])
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def engine(port: int, answers: dict[str, Any]) -> FakeEngine:
    """An engine that calls the example's process; its clock is the real one."""

    def handle(body: bytes, headers: object) -> tuple[int, bytes]:
        request = json.loads(body)["request"]
        signed = {"runr_workflow": "v1", "signature": signature(request, t=int(time.time())), "request": request}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("POST", "/", json.dumps(signed))
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    return FakeEngine(handle, answers=answers)


@pytest.mark.parametrize(
    ("answers", "end", "shipped"), [({"shipped": SHIPPED}, ["notify"], True), ({}, ["release-stock", "refund"], False)]
)
def test_an_order_runs_each_body_once(
    port: int, log: Path, answers: dict[str, Any], end: list[str], shipped: bool
) -> None:
    run = engine(port, answers).run("process-order")

    assert run.output == {"shipped": shipped}
    steps = ["charge-card", "reserve-stock", "fraud-check-window", "shipped", *end]
    assert [step_id for _, step_id in run.kinds] == steps
    assert run.ops[2]["duration"] == "1s"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines] == ["charge-card", "reserve-stock", *end]
    assert {line["order_id"] for line in lines} == {"o-1"}
