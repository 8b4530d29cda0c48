"""The race that `lookback` closes: the answer comes before the wait for it is stored."""

from __future__ import annotations

from typing import Any

import pytest
from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest, step_of
from tests.support.workflow_app import Bodies, serving


def verify(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("verify", triggers=[{"event": "user.signed-up"}])
    def workflow(ctx: Context, step: Step) -> Any:
        step.run("request-check", bodies.record, ctx.run_id, "request-check")
        looking = {"lookback": "run"} if ctx.event["data"]["looks_back"] else {}
        checked = step.wait_for_event("checked", "check.done", match="data.user_id", timeout="2s", **looking)
        again = step.wait_for_event("again", "check.done", match="data.user_id", timeout="1s", lookback="run")
        return [checked and checked["id"], again and again["id"]]


@pytest.mark.parametrize("looks_back", [True, False])
async def test_an_answer_that_comes_before_the_wait(rest: Rest, looks_back: bool) -> None:
    async with serving(rest, verify) as bodies:
        bodies.hold("request-check")
        (run,) = (await rest.send("user.signed-up", {"user_id": "u-1", "looks_back": looks_back}))["runs"]
        await bodies.reached(run, "request-check")
        await rest.send("check.done", {"user_id": "someone else"})
        early = await rest.send("check.done", {"user_id": "u-1"})
        assert early["resumed"] == 0
        bodies.let_go()
        found = await rest.end(run)
    # An event is given to a run once: whichever of the two waits takes it, the other does not.
    assert found["output"] == ([early["id"], None] if looks_back else [None, early["id"]])
    assert step_of(found, "checked")["status"] == "completed"
