"""The function servers without an SDK (examples/function-servers): `runr conformance` finds nothing wrong with them."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from services.cli.conformance.execution import Execution
from services.cli.conformance.probe import Probe
from services.cli.conformance.wire import Place
from tests.support.bare_function import EXAMPLE
from tests.support.function_process import FALLBACK_KEY, KEY, conformance, names, serving
from tests.support.inetd import inetd

CAPABILITIES = [
    "max-ops-several",
    "max-ops-at-most",
    "max-ops-budget",
    "max-ops-attempt",
    "dry-runs-nothing",
    "dry-kinds",
]
SHELL = EXAMPLE.parents[1] / "shell" / "function.sh"
TOOLS = ("sh", "awk", "openssl", "od", "iconv", "cmp", "sed", "grep", "tr", "cut", "head", "mktemp")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]


ENVIRON = {
    "PATH": os.environ["PATH"],
    "RUNR_WORKFLOW_SIGNING_KEY": KEY,
    "RUNR_WORKFLOW_SIGNING_KEY_FALLBACK": FALLBACK_KEY,
}


async def test_the_server_in_bare_python() -> None:
    # -S: without anything that is installed.
    async with serving([sys.executable, "-S", EXAMPLE, "0"]) as url:
        code, said = await conformance(url)
    assert [rule for rule in said["rules"] if rule["state"] == "failed"] == []
    assert (code, names(said, "not applicable")) == (0, ["steps-together", *CAPABILITIES])


@pytest.mark.skipif(bool(MISSING), reason=f"the server in shell needs {', '.join(MISSING)}")
async def test_the_server_in_plain_shell() -> None:
    with inetd(["sh", str(SHELL)], ENVIRON) as (url, words):
        # A request takes dozens of processes.
        code, said = await conformance(url, "--timeout", "60", "--limit", "600")
    assert [rule for rule in said["rules"] if rule["state"] == "failed"] == []
    assert (code, names(said, "not applicable")) == (0, ["connection-kept", "steps-together", *CAPABILITIES])
    assert words == []


async def the_order(url: str) -> list[dict[str, object]]:
    """The ops of an order, from its first invocation to its end."""
    probe = Probe(Place.of(url, verify_tls=True), [KEY], timeout_s=60)
    run = Execution.of("order", order_id="o-1")
    ops: list[dict[str, object]] = []
    for output in ('{"reservation":"r-o-1"}', "null", '{"name":"order.shipped","data":{}}'):
        answered = await probe.execute(run, "an order")
        ops += answered.written
        run = run.completed(str(answered.written[0]["id"]), output)
    return [*ops, *(await probe.execute(run, "an order that is shipped")).written]


WAIT = {"event": "order.shipped", "match": "data.order_id", "timeout": "3d"}


async def test_the_order_of_the_server_in_bare_python() -> None:
    async with serving([sys.executable, "-S", EXAMPLE, "0"]) as url:
        reserve, sleep, wait, end = await the_order(url)
    assert reserve == {
        "op": "step_completed",
        "id": "reserve",
        "name": "reserve",
        "output": {"reservation": "r-o-1"},
    }
    assert sleep == {"op": "sleep", "id": "cool-off", "name": "cool-off", "duration": "10m"}
    assert wait == {"op": "wait_for_event", "id": "shipped", "name": "shipped", **WAIT}
    assert end == {"op": "run_completed", "output": {"status": "done", "reservation": "r-o-1"}}


@pytest.mark.skipif(bool(MISSING), reason=f"the server in shell needs {', '.join(MISSING)}")
async def test_the_order_of_the_server_in_plain_shell() -> None:
    with inetd(["sh", SHELL.name], ENVIRON, cwd=SHELL.parent) as (url, words):
        reserve, sleep, wait, end = await the_order(url)
    assert reserve == {"op": "step_completed", "id": "reserve", "name": "reserve", "output": {"order": "o-1"}}
    assert sleep == {"op": "sleep", "id": "cool-off", "name": "cool-off", "duration": "10m"}
    assert wait == {"op": "wait_for_event", "id": "shipped", "name": "shipped", **WAIT}
    assert end == {"op": "run_completed", "output": {"status": "done", "reserved": {"reservation": "r-o-1"}}}
    assert words == []
