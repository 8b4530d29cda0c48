"""Two tenants, everything named alike: neither sees, moves or slows the other's."""

from __future__ import annotations

from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest
from tests.support.stack import Stack
from tests.support.workflow_app import Bodies, serving


def same(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow(
        "work",
        triggers=[{"event": "work.begun"}],
        cancel_on=[{"event": "work.stop"}],
    )
    def work(ctx: Context, step: Step) -> Any:
        step.run("do", bodies.record, ctx.run_id, "do")
        event = step.wait_for_event("go", "work.go", timeout="1h")
        return event and event["data"]


async def test_two_tenants_do_not_meet(stack: Stack, rest: Rest) -> None:
    async with stack.tenant(rest.transport) as other, serving(rest, same) as mine, serving(other, same) as theirs:
        (run,) = (await rest.send("work.begun", id="e-1"))["runs"]
        (foreign,) = (await other.send("work.begun", id="e-1"))["runs"]
        for client, each in ((rest, run), (other, foreign)):
            await client.becomes(each, "waiting")

        assert (await rest.send("work.go", {"for": "mine"}))["resumed"] == 1
        assert await rest.completed(run) == {"for": "mine"}
        assert (await other.run(foreign))["status"] == "waiting"
        assert (await rest.send("work.stop"))["cancelled"] == 0
        assert (await other.send("work.go", {"for": "theirs"}))["resumed"] == 1
        assert await other.completed(foreign) == {"for": "theirs"}

        assert [each["id"] for each in await rest.runs()] == [run]
        assert [each["id"] for each in await other.runs()] == [foreign]
        assert {body.run for body in mine.all} == {run}
        assert {body.run for body in theirs.all} == {foreign}


async def test_what_is_another_tenants_looks_like_nothing(stack: Stack, rest: Rest) -> None:
    async with stack.tenant(rest.transport) as other, serving(other, same):
        sent = await other.send("work.begun")
        (foreign,) = sent["runs"]
        nothing = "01M8MT9HTGBBWZAKWD2SJY34S6"
        for method, path in (
            ("GET", "/runs/{}"),
            ("GET", "/runs/{}/result?wait=0"),
            ("POST", "/runs/{}/cancel"),
            ("POST", "/runs/{}/retry"),
            ("POST", "/runs/{}/replay"),
        ):
            told = []
            for run in (foreign, nothing):
                reply = await rest.call(method, path.format(run), {} if method == "POST" else None)
                problem = {name: value for name, value in reply.problem(404).items() if name != "trace_id"}
                told.append({**problem, "detail": problem["detail"].replace(run, "…")})
            assert told[0] == told[1]
        (await rest.call("GET", f"/events/{sent['id']}")).problem(404)
        (await rest.call("POST", f"/projects/{rest.project}/workflows/work/runs", {})).problem(404)
        await other.becomes(foreign, "waiting")
        await other.ok("POST", f"/runs/{foreign}/cancel", {})
