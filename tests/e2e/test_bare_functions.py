"""The function servers without an SDK (examples/function-servers) do the work of the real engine."""

from __future__ import annotations

import os
import sys

import pytest

from tests.integration.test_bare_functions import MISSING, SHELL
from tests.support.bare_function import EXAMPLE
from tests.support.function_process import serving
from tests.support.inetd import inetd
from tests.support.rest import Rest, step_of
from tests.support.transports import only_over
from tests.support.workflow_app import signing_key, sync

pytestmark = only_over("http", because="a server without an SDK speaks HTTP")


async def tell_runs(rest: Rest, url: str) -> None:
    """What comes of a run to its end, of one whose step fails, and of an order that waits."""
    await rest.ok("PATCH", f"/projects/{rest.project}/workflows/app", {"endpoint_url": url})
    assert "conformance-replay" in await sync(rest)

    replayed = await rest.completed(await rest.start("conformance-replay", {"tag": "é"}))
    assert (replayed["executed"], replayed["second"]["tag"]) == ([], "é")

    caught = {"where": "step", "kind": "non_retriable", "message": "declined", "catch": True}
    seen = await rest.completed(await rest.start("conformance-errors", caught))
    assert (seen["message"], seen["step_id"]) == ("declined", "risky")

    order = await rest.start("order", {"order_id": "o-1"})
    found = await rest.becomes(order, "sleeping")
    assert step_of(found, "reserve")["status"] == "completed"
    await rest.ok("POST", f"/runs/{order}/cancel", {})


async def test_the_server_in_bare_python(rest: Rest) -> None:
    key = {"RUNR_WORKFLOW_SIGNING_KEY": await signing_key(rest)}
    async with serving([sys.executable, "-S", EXAMPLE, "0"], environ=key) as url:
        await tell_runs(rest, url)


@pytest.mark.skipif(bool(MISSING), reason=f"the server in shell needs {', '.join(MISSING)}")
async def test_the_server_in_plain_shell(rest: Rest) -> None:
    environ = {"PATH": os.environ["PATH"], "RUNR_WORKFLOW_SIGNING_KEY": await signing_key(rest)}
    with inetd(["sh", str(SHELL)], environ) as (url, words):
        await tell_runs(rest, url)
    assert words == []
