"""MCP as an agent has it: the official client before the real gateway, behind it methods of the test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from runr.workflows.v1 import (
    access_service_pb2,
    event_service_pb2,
    resources_pb2,
    run_service_pb2,
    workflow_service_pb2,
)

from services.core.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from services.core.rpc.call_context import caller
from services.gateway.mcp.tools import TOOLS
from tests.support.grpc_backend import ADMIN, VIEWER
from tests.support.http_gateway import Client, gateway
from tests.support.mcp_client import ERAS, Era, agent, called, post, text_of

RUN = "01KB8V2T1XQ4T5S0Z6WJ7N8M9P"
TRACE = "workflows.runr.dev/trace_id"
READING = ["workflows_list", "workflow_runs_list", "workflow_run_status"]

# What each tool asks its service when it is called with these arguments.
CALLS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "workflows_list": (
        "workflow.ListWorkflows",
        {"archived": True, "limit": 7, "cursor": "next"},
        workflow_service_pb2.ListWorkflowsRequest(
            project="default", page_size=7, page_token="next", include_archived=True
        ),
    ),
    "workflow_run_start": (
        "run.StartRun",
        {"project": "shop", "workflow": "charge", "data": {"n": 1.0}, "idempotency_key": "k", "tags": ["a", "b"]},
        run_service_pb2.StartRunRequest(
            project="shop", workflow="charge", data=b'{"n":1.0}', idempotency_key="k", tags=["a", "b"]
        ),
    ),
    "workflow_runs_list": (
        "run.ListRuns",
        {"status": ["failed", "running"], "tag": ["a"], "workflow": "charge", "q": None},
        run_service_pb2.ListRunsRequest(
            project="default",
            workflow="charge",
            states=[resources_pb2.RUN_STATE_FAILED, resources_pb2.RUN_STATE_RUNNING],
            tags=["a"],
        ),
    ),
    "workflow_run_status": ("run.GetRun", {"run_id": RUN}, run_service_pb2.GetRunRequest(run_id=RUN)),
    "workflow_run_cancel": (
        "run.CancelRun",
        {"run_id": RUN, "children": "keep"},
        run_service_pb2.CancelRunRequest(run_id=RUN, children=run_service_pb2.CHILDREN_POLICY_KEEP),
    ),
    "workflow_run_retry": ("run.RetryRun", {"run_id": RUN}, run_service_pb2.RetryRunRequest(run_id=RUN)),
    "workflow_run_replay": (
        "run.ReplayRun",
        {"run_id": RUN, "from_step": "pay", "data": {"b": 2, "a": 1}},
        run_service_pb2.ReplayRunRequest(run_id=RUN, from_step="pay", data=b'{"b":2,"a":1}'),
    ),
    "event_send": (
        "event.SendEvents",
        {"name": "paid", "data": {"cents": 12345678901234567890}, "id": "e-1", "ts": 5, "test": True},
        event_service_pb2.SendEventsRequest(
            test=True,
            events=[event_service_pb2.NewEvent(name="paid", data=b'{"cents":12345678901234567890}', id="e-1", ts=5)],
        ),
    ),
}


class Services:
    """All methods that tools ask. They answer with what is empty, or with `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, Any]] = []
        self.tenants: list[int] = []

    def methods(self) -> dict[str, Any]:
        run = resources_pb2.Run(id=RUN, workflow="charge", project="default", state=resources_pb2.RUN_STATE_RUNNING)
        answers = {
            "workflow.ListWorkflows": workflow_service_pb2.ListWorkflowsResponse(next_page_token="more"),
            "run.StartRun": run_service_pb2.StartRunResponse(run=run),
            "run.ListRuns": run_service_pb2.ListRunsResponse(runs=[run]),
            "run.GetRun": run_service_pb2.GetRunResponse(run=run),
            "run.CancelRun": run_service_pb2.CancelRunResponse(run=run),
            "run.RetryRun": run_service_pb2.RetryRunResponse(run=run),
            "run.ReplayRun": run_service_pb2.ReplayRunResponse(run=run),
            "event.SendEvents": event_service_pb2.SendEventsResponse(
                results=[event_service_pb2.EventResult(id="01J", name="paid", run_ids=[RUN])]
            ),
        }
        return {"access.GetCaller": _caller, **{name: self._method(name, answer) for name, answer in answers.items()}}

    def _method(self, name: str, answer: Any) -> Any:
        async def method(request: Any, _: Any) -> Any:
            self.asked.append((name, request))
            self.tenants.append(caller().tenant)
            if self.error is not None:
                raise self.error
            return answer

        return method


async def _caller(_: Any, __: Any) -> access_service_pb2.GetCallerResponse:
    return access_service_pb2.GetCallerResponse(tenant="default", abilities=sorted(caller().abilities))


@asynccontextmanager
async def served(error: Exception | None = None) -> AsyncIterator[tuple[Client, Services]]:
    services = Services(error)
    async with gateway(services.methods()) as client:
        yield client, services


def trace_of(result: Any) -> str:
    return str(result.meta[TRACE])


def url_of(client: Client) -> str:
    return f"http://{client.address}/mcp"


@pytest.mark.parametrize("era", ERAS)
async def test_every_tool_asks_its_method_and_answers_as_its_schema_says(era: Era) -> None:
    async with served() as (client, services), agent(url_of(client), ADMIN, era) as mcp:
        listed = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert list(listed) == [tool.name for tool in TOOLS]
        assert set(CALLS) == set(listed)
        for name, (method, arguments, request) in CALLS.items():
            result = await mcp.call_tool(name, arguments)  # the client holds the answer against the schema
            assert not result.is_error, text_of(result)
            assert services.asked.pop() == (method, request)
            assert json.loads(text_of(result)) == result.structured_content
            assert len(trace_of(result)) == 32
            assert listed[name].output_schema is not None


async def test_what_a_tool_does_is_hinted() -> None:
    async with served() as (client, _), agent(url_of(client), ADMIN) as mcp:
        tools = (await mcp.list_tools()).tools
        hints = {tool.name: tool.annotations for tool in tools if tool.annotations is not None}
        assert [name for name, hint in hints.items() if hint.read_only_hint] == READING
        assert [name for name, hint in hints.items() if hint.destructive_hint] == ["workflow_run_cancel"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_token_is_shown_what_it_may_use_and_refused_the_rest_by_the_service(era: Era) -> None:
    async with served() as (client, services), agent(url_of(client), VIEWER, era) as mcp:
        assert [tool.name for tool in (await mcp.list_tools()).tools] == READING
        for name, (_, arguments, _) in CALLS.items():
            result = await mcp.call_tool(name, arguments)
            assert result.is_error == (name not in READING)
            if result.is_error:
                assert text_of(result).startswith("Permission denied (403): this token may not do this: it needs ")
        assert [name for name, _ in services.asked] == [CALLS[name][0] for name in READING]


async def test_a_tenant_is_chosen_by_its_header() -> None:
    async with served() as (client, services):
        async with agent(url_of(client), ADMIN, headers={"X-Tenant-ID": "acme"}) as mcp:
            await mcp.call_tool("workflow_run_status", {"run_id": RUN})
        assert services.tenants == [2]
        reply = await post(client, called("workflow_run_status", {"run_id": RUN}), headers={"X-Tenant-ID": "other"})
        reply.problem(403)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotFound("there is no such run"), ["Not found (404): there is no such run"]),
        (Conflict("the run has ended", reason="RUN_ENDED"), ["Conflict (409): the run has ended"]),
        (
            Unavailable("the database is away"),
            ["Temporarily unavailable (503): the database is away", "Try again after 1 s."],
        ),
        (InvalidInput.of("run_id", "is no id"), ["Invalid input (422): run_id: is no id", "- run_id: is no id"]),
        (RuntimeError("secret of the service"), ["Internal error (500): "]),
    ],
)
async def test_an_error_is_an_answer_that_an_agent_can_read(error: Exception, said: list[str]) -> None:
    async with served(error) as (client, _), agent(url_of(client), ADMIN) as mcp:
        result = await mcp.call_tool("workflow_run_status", {"run_id": RUN})
    assert result.is_error
    assert result.structured_content is None
    lines = text_of(result).splitlines()
    assert [line[: len(part)] for line, part in zip(lines, said, strict=False)] == said
    assert lines[-1] == f"trace id: {trace_of(result)}"
    assert "secret" not in text_of(result)


async def test_every_fault_of_the_arguments_is_told_at_once_and_nothing_is_asked() -> None:
    async with served() as (client, services), agent(url_of(client), ADMIN) as mcp:
        result = await mcp.call_tool(
            "workflow_runs_list", {"status": ["gone"], "limit": 1.5, "from": "now", "workflow": [], "colour": 1}
        )
        assert result.is_error
        faults = {line.partition(":")[0] for line in text_of(result).splitlines() if line.startswith("- ")}
        assert faults == {"- status", "- limit", "- from", "- workflow", "- colour"}
        wrong = {"run_id": RUN, "idempotency_key": "two words"}
        assert "- idempotency_key: " in text_of(await mcp.call_tool("workflow_run_replay", wrong))
        assert "- run_id: is required" in text_of(await mcp.call_tool("workflow_run_retry", {}))
        assert services.asked == []


async def test_a_tool_that_is_not_there_is_an_error_of_the_protocol() -> None:
    async with served() as (client, _), agent(url_of(client), ADMIN) as mcp:
        with pytest.raises(MCPError, match="there is no tool 'shell'"):
            await mcp.call_tool("shell", {"command": "true"})


async def test_the_trace_of_a_call_is_that_of_its_request() -> None:
    async with served() as (client, _):
        reply = await post(client, called("workflow_run_status", {"run_id": RUN}))
    assert reply.json["result"]["_meta"][TRACE] == reply.headers["x-trace-id"]


async def test_any_replica_may_be_asked_without_a_session() -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
    async with served() as (one, _), served() as (other, _):
        begun = await post(one, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        assert begun.json["result"]["protocolVersion"] == "2025-06-18"
        assert "Mcp-Session-Id" not in begun.headers
        told = await post(other, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert told.status == 202
        for replica in (one, other):
            said = {"MCP-Protocol-Version": "2025-06-18", "Mcp-Session-Id": "whatever"}
            reply = await post(replica, called("workflow_run_status", {"run_id": RUN}), headers=said)
            assert reply.json["result"]["structuredContent"]["id"] == RUN


async def test_while_nobody_knows_what_a_token_may_do_the_tools_judge_by_themselves() -> None:
    async def away(_: Any, __: Any) -> Any:
        raise Unavailable("the scheduler is away")

    services = Services()
    async with (
        gateway({**services.methods(), "access.GetCaller": away}) as client,
        agent(url_of(client), VIEWER) as mcp,
    ):
        assert len((await mcp.list_tools()).tools) == len(TOOLS)
        assert not (await mcp.call_tool("workflow_run_status", {"run_id": RUN})).is_error
        assert "403" in text_of(await mcp.call_tool("workflow_run_retry", {"run_id": RUN}))
