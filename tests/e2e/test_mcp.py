"""An agent works with runs: the official MCP client on the real engine."""

from __future__ import annotations

from typing import Any

from mcp import Client
from runr_workflows import Context, NonRetriableError, Step, Workflows

from tests.support.mcp_client import ERAS, agent, text_of
from tests.support.pages import page
from tests.support.rest import Rest, step_of
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

HTTP_BECAUSE = "agents ask the gateway, however their runs are executed"


class Bank:
    """What the code of the story depends on."""

    open = False


def refunding(bank: Bank) -> Any:
    def register(wf: Workflows, bodies: Bodies) -> None:
        def pay(run: str, cents: int) -> int:
            bodies.record(run, "pay")
            if not bank.open:
                raise NonRetriableError("the bank is closed")
            return cents

        @wf.workflow("refund", triggers=[{"event": "refund.asked"}])
        def refund(ctx: Context, step: Step) -> dict[str, Any]:
            data = ctx.event["data"]
            approval = step.wait_for_event("approval", "refund.approved", match="data.order_id", timeout="1h")
            assert approval is not None
            return {"paid": step.run("pay", pay, ctx.run_id, data["cents"]), "by": approval["data"]["by"]}

    return register


async def use(mcp: Client, tool: str, **arguments: Any) -> Any:
    """The structured answer of a tool that must succeed."""
    result = await mcp.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return result.structured_content


@only_over("http", because=HTTP_BECAUSE)
async def test_an_agent_follows_a_refund_from_its_event_to_its_end(stack: Stack, rest: Rest) -> None:
    bank = Bank()
    async with serving(rest, refunding(bank)) as bodies, agent(f"{stack.api_url}/mcp", rest.token) as mcp:
        (workflow,) = (await use(mcp, "workflows_list"))["data"]
        assert (workflow["name"], workflow["triggers"]) == ("refund", [{"event": "refund.asked"}])
        sent = await use(mcp, "event_send", name="refund.asked", data={"order_id": "o-1", "cents": 1250}, id="ask-1")
        ((run,),) = [event["runs"] for event in sent["events"]]
        again = await use(mcp, "event_send", name="refund.asked", data={"order_id": "o-1", "cents": 1250}, id="ask-1")
        assert again["events"][0]["duplicate"]
        await rest.becomes(run, "waiting")
        await use(mcp, "event_send", name="refund.approved", data={"order_id": "o-1", "by": "ada"})
        await rest.end(run)
        shown = await use(mcp, "workflow_run_status", run_id=run)
        assert (shown["status"], step_of(shown, "pay")["status"]) == ("failed", "failed")
        bank.open = True
        await use(mcp, "workflow_run_retry", run_id=run)
        assert await rest.completed(run) == {"paid": 1250, "by": "ada"}
        once = {"run_id": run, "from_step": "pay", "idempotency_key": "replay-1"}
        replay, same = [await use(mcp, "workflow_run_replay", **once) for _ in range(2)]
        assert same["id"] == replay["id"]
        refused = await mcp.call_tool("workflow_run_replay", {**once, "from_step": "approval"})
        assert text_of(refused).startswith("Invalid input (422)")
        assert await rest.completed(replay["id"]) == {"paid": 1250, "by": "ada"}
        listed = await use(mcp, "workflow_runs_list", workflow="refund", status=["completed"])
        assert [each["id"] for each in listed["data"]] == [replay["id"], run]
    assert (bodies.of(run), bodies.of(replay["id"])) == ({"pay": 2}, {"pay": 1})


@only_over("http", because=HTTP_BECAUSE)
async def test_an_agent_of_either_version_starts_one_run_and_cancels_it(stack: Stack, rest: Rest) -> None:
    async with serving(rest, refunding(Bank())):
        for era in ERAS:
            async with agent(f"{stack.api_url}/mcp", rest.token, era) as mcp:
                asked = {"workflow": "refund", "data": {"order_id": "o-2"}, "idempotency_key": f"k-{era}"}
                first, second = [await use(mcp, "workflow_run_start", **asked) for _ in range(2)]
                assert first["id"] == second["id"]
                await rest.becomes(first["id"], "waiting")
                assert (await use(mcp, "workflow_run_cancel", run_id=first["id"]))["status"] == "cancelled"
                refused = await mcp.call_tool("workflow_run_start", {"workflow": "refund", "delay": "yesterday"})
                assert "- delay: " in text_of(refused)


@only_over("http", because=HTTP_BECAUSE)
async def test_an_agent_sees_nothing_of_another_tenant(stack: Stack, rest: Rest) -> None:
    async with serving(rest, refunding(Bank())), stack.tenant("http") as other:
        run = await rest.start("refund", {"order_id": "o-3"})
        await rest.becomes(run, "waiting")
        async with agent(f"{stack.api_url}/mcp", other.token) as mcp:
            for tool in ("workflow_run_status", "workflow_run_cancel", "workflow_run_retry", "workflow_run_replay"):
                answer = await mcp.call_tool(tool, {"run_id": run})
                assert answer.is_error
                assert text_of(answer).startswith("Not found (404)")
            assert (await use(mcp, "workflow_runs_list"))["data"] == []
        assert (await rest.run(run))["status"] == "waiting"


@only_over("http", because=HTTP_BECAUSE)
async def test_the_client_on_the_page_starts_a_run(stack: Stack, rest: Rest) -> None:
    def charging(wf: Workflows, _: Bodies) -> None:
        @wf.workflow("charge")
        def charge(ctx: Context, step: Step) -> Any:
            return ctx.event["data"]

    (code,) = page("docs/how-to/mcp.md").blocks("python")
    names: dict[str, Any] = {}
    exec(code.replace("http://127.0.0.1:8080", stack.api_url), names)
    async with serving(rest, charging):
        assert await rest.completed(await names["start"](rest.token)) == {"order_id": "o-1"}
