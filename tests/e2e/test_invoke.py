"""Parents and children: outputs, failures, timeouts, and the end of one reaching the other."""

from __future__ import annotations

from typing import Any

from runr_workflows import Context, InvokeError, NonRetriableError, Step, Workflows

from tests.support.rest import Rest, step_of, steps_of
from tests.support.workflow_app import Bodies, serving


def family(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("child", retries=0)
    def child(ctx: Context, step: Step) -> dict[str, Any]:
        n = ctx.event["data"].get("n", 0)
        if n < 0:
            raise NonRetriableError(f"n is {n}")
        step.run("work", bodies.record, ctx.run_id, "work")
        if n > 100:
            step.wait_for_event("for-ever", "never", timeout="1h")
        return {"doubled": 2 * n, "source": ctx.source, "parent": ctx.parent_run_id}

    @wf.workflow("parent")
    def parent(ctx: Context, step: Step) -> dict[str, Any]:
        n = ctx.event["data"]["n"]
        try:
            first = step.invoke("first", child, data={"n": n}, timeout=ctx.event["data"].get("patience"))
        except InvokeError as error:
            return {"error": error.name, "message": error.message}
        second = step.invoke("second", "child", data={"n": first["doubled"]})
        return {"first": first, "second": second["doubled"]}

    @wf.workflow("grandparent")
    def grandparent(ctx: Context, step: Step) -> Any:
        return step.invoke("parent", parent, data=ctx.event["data"])

    @wf.workflow("lonely")
    def lonely(ctx: Context, step: Step) -> str:
        try:
            step.invoke("missing", "nobody")
        except InvokeError as error:
            return error.name
        return "?"


async def test_a_child_gives_its_output_to_its_parent(rest: Rest) -> None:
    async with serving(rest, family) as bodies:
        run = await rest.start("grandparent", {"n": 3})
        output = await rest.completed(run)
        (parent,) = (await rest.run(run))["children"]
        found = await rest.run(parent["id"])
    first, second = found["children"]
    assert output == {"first": {"doubled": 6, "source": "invoke", "parent": parent["id"]}, "second": 12}
    assert (parent["workflow"], parent["step_id"], parent["status"]) == ("parent", "parent", "completed")
    assert (first["step_id"], second["step_id"]) == ("first", "second")
    assert step_of(found, "first")["child_run_id"] == first["id"]
    assert [bodies.of(child["id"]) for child in (first, second)] == [{"work": 1}] * 2


async def test_a_child_that_fails_fails_the_step(rest: Rest) -> None:
    async with serving(rest, family):
        run = await rest.start("parent", {"n": -1})
        output = await rest.completed(run)
        found = await rest.run(run)
    assert output["error"] == "InvokeError"
    assert "n is -1" in output["message"]
    assert steps_of(found) == {"first": "failed"}
    assert found["children"][0]["status"] == "failed"


async def test_a_timeout_ends_the_step_and_not_the_child(rest: Rest) -> None:
    async with serving(rest, family):
        run = await rest.start("parent", {"n": 101, "patience": "1s"})
        output = await rest.completed(run)
        (child,) = (await rest.run(run))["children"]
        assert output["error"] == "InvokeTimeout"
        assert child["status"] == "waiting"
        await rest.send("never")
        assert (await rest.completed(child["id"]))["doubled"] == 202
        assert (await rest.run(run))["output"] == output


async def test_a_workflow_that_is_not_there_fails_the_step(rest: Rest) -> None:
    async with serving(rest, family):
        assert await rest.completed(await rest.start("lonely")) == "InvokeError"


async def test_a_cancelled_parent_takes_its_children_with_it(rest: Rest) -> None:
    async with serving(rest, family):
        run = await rest.start("grandparent", {"n": 101})
        parent = (await rest.becomes(run, lambda found: found["children"]))["children"][0]["id"]
        child = (await rest.becomes(parent, lambda found: found["children"]))["children"][0]["id"]
        await rest.becomes(child, "waiting")
        await rest.ok("POST", f"/runs/{run}/cancel", {})
        ended = [await rest.end(each) for each in (run, parent, child)]
    assert [each["status"] for each in ended] == ["cancelled"] * 3


async def test_children_may_be_kept(rest: Rest) -> None:
    async with serving(rest, family):
        run = await rest.start("parent", {"n": 101})
        child = (await rest.becomes(run, lambda found: found["children"]))["children"][0]["id"]
        await rest.becomes(child, "waiting")
        await rest.ok("POST", f"/runs/{run}/cancel", {"children": "keep"})
        assert (await rest.end(run))["status"] == "cancelled"
        await rest.send("never")
        assert (await rest.completed(child))["doubled"] == 202


async def test_a_cancelled_child_fails_the_step_of_its_parent(rest: Rest) -> None:
    async with serving(rest, family):
        run = await rest.start("parent", {"n": 101})
        child = (await rest.becomes(run, lambda found: found["children"]))["children"][0]["id"]
        await rest.becomes(child, "waiting")
        await rest.ok("POST", f"/runs/{child}/cancel", {})
        output = await rest.completed(run)
    assert output["error"] == "InvokeError"
    assert "cancelled" in output["message"]
