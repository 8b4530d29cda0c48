"""The REST API (engine section 3): what each route asks of a service, and what it answers."""

from __future__ import annotations

from typing import Any

import pytest
from runr.workflows.v1 import (
    access_service_pb2,
    event_service_pb2,
    function_service_pb2,
    resources_pb2,
    run_service_pb2,
    workflow_service_pb2,
)

from services.core.domain.errors import Conflict
from services.core.rpc.call_context import caller
from services.core.rpc.convert import timestamp
from tests.support.http_gateway import gateway

AT = 1_760_000_000_123
AT_TEXT = "2025-10-09T08:53:20.123Z"
# No reader and writer of JSON gives this back: big integer, 1.0, key order, escapes, blanks, doubled keys are all kept.
ODD_JSON = b'{"z": 12345678901234567890123, "a":1.0,"s":"\\u0000\\ud800\\/", "e":1E2 }'


class Seen:
    """Keeps the last request and answers with what it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.request: Any = None
        self.tenant = 0

    @property
    def method(self) -> Any:
        async def method(request: Any, context: Any) -> Any:
            self.request, self.tenant = request, caller().tenant
            return self.answer

        return method


def a_run(**fields: Any) -> resources_pb2.Run:
    base: dict[str, Any] = {
        "id": "01J0000000000000000000000A",
        "workflow": "process-order",
        "project": "shop",
        "state": resources_pb2.RUN_STATE_COMPLETED,
        "source": resources_pb2.RUN_SOURCE_API,
        "created_at": timestamp(AT),
        "started_at": timestamp(AT),
    }
    return resources_pb2.Run(**(base | fields))


async def test_events_are_sent_and_answered_in_the_documented_shape() -> None:
    answer = event_service_pb2.SendEventsResponse()
    answer.results.add(id="01E", name="order.created", run_ids=["01R"], resumed=2, cancelled=1)
    answer.results.add(id="01F", name="order.paid", duplicate=True)
    seen = Seen(answer)
    body = b'[{"name":"order.created","data":' + ODD_JSON.replace(b"\\ud800", b"x") + b',"id":"o-1","ts":5},'
    async with gateway({"event.SendEvents": seen.method}) as client:
        reply = await client.call("POST", "/api/events?test=1", raw=body + b'{"name":"order.paid"}]')
    assert reply.status == 200
    assert reply.json == {
        "ids": ["01E", "01F"],
        "events": [
            {"id": "01E", "name": "order.created", "duplicate": False, "runs": ["01R"], "resumed": 2, "cancelled": 1},
            {"id": "01F", "name": "order.paid", "duplicate": True, "runs": [], "resumed": 0, "cancelled": 0},
        ],
    }
    first, second = seen.request.events
    assert seen.request.test is True
    assert (first.name, first.id, first.ts) == ("order.created", "o-1", 5)
    assert first.data == ODD_JSON.replace(b"\\ud800", b"x")
    assert (second.data, second.HasField("id"), second.HasField("ts")) == (b"{}", False, False)


async def test_a_run_is_shown_with_steps_and_payloads_byte_for_byte() -> None:
    run = a_run(
        attempt=1,
        tags=["a"],
        idempotency_key="k",
        output=ODD_JSON,
        ended_at=timestamp(AT + 1),
        trace_id="ab" * 16,
    )
    run.event.CopyFrom(resources_pb2.TriggerEvent(id="01E", name="runr/api.start", data=ODD_JSON, ts=AT))
    run.attempts.add(attempt=1, started_at=timestamp(AT)).error.name = "WorkerLost"
    answer = run_service_pb2.GetRunResponse(run=run)
    step = answer.steps.add(
        id="charge:1",
        name="charge",
        kind=resources_pb2.STEP_KIND_RUN,
        state=resources_pb2.STEP_STATE_COMPLETED,
        output=ODD_JSON,
        input=b"[1.0]",
        started_at=timestamp(AT),
        ended_at=timestamp(AT + 1),
    )
    failed = step.attempts.add(attempt=1, started_at=timestamp(AT), ended_at=timestamp(AT))
    failed.error.CopyFrom(resources_pb2.Failure(name="Declined", message="no", stack="at x"))
    wait = answer.steps.add(
        id="shipped",
        name="shipped",
        kind=resources_pb2.STEP_KIND_WAIT_FOR_EVENT,
        state=resources_pb2.STEP_STATE_WAITING,
    ).wait
    wait.CopyFrom(
        resources_pb2.StepWait(event="order.shipped", condition="true", timeout_at=timestamp(AT), warnings=["w"])
    )
    answer.children.add(id="01C", workflow="child", step_id="call", state=resources_pb2.RUN_STATE_RUNNING)
    async with gateway({"run.GetRun": Seen(answer).method}) as client:
        reply = await client.call("GET", "/api/runs/01J0000000000000000000000A")
    assert reply.status == 200
    assert reply.body.count(ODD_JSON) == 3
    shown = reply.json
    assert {key: shown[key] for key in ("status", "source", "created_at", "ended_at", "due_at", "trace_id")} == {
        "status": "completed",
        "source": "api",
        "created_at": AT_TEXT,
        "ended_at": AT_TEXT.replace("123", "124"),
        "due_at": None,
        "trace_id": "ab" * 16,
    }
    assert shown["attempts"][0]["error"] == {"name": "WorkerLost", "message": "", "stack": None}
    first, second = shown["steps"]
    assert (first["id"], first["name"], first["kind"], first["status"]) == ("charge:1", "charge", "run", "completed")
    assert first["input"] == [1.0]
    assert first["attempts"][0]["error"] == {"name": "Declined", "message": "no", "stack": "at x"}
    assert second["output"] is None
    assert second["wait"] == {
        "event": "order.shipped",
        "condition": "true",
        "timeout_at": AT_TEXT,
        "warnings": ["w"],
    }
    assert shown["children"] == [{"id": "01C", "workflow": "child", "step_id": "call", "status": "running"}]


async def test_a_run_with_more_steps_than_one_answer_holds_is_shown_whole() -> None:
    async def get_run(request: Any, context: Any) -> Any:
        at = int(request.page_token or 0)
        answer = run_service_pb2.GetRunResponse(run=a_run(), next_page_token=str(at + 1) if at < 2 else "")
        answer.steps.add(id=f"s{at}", name="s", kind=1, state=1)
        return answer

    async with gateway({"run.GetRun": get_run}) as client:
        reply = await client.call("GET", "/api/runs/r")
    assert [step["id"] for step in reply.json["steps"]] == ["s0", "s1", "s2"]


async def test_a_start_makes_a_run_or_finds_it() -> None:
    seen = Seen(run_service_pb2.StartRunResponse(run=a_run(state=resources_pb2.RUN_STATE_QUEUED)))
    path = "/api/projects/shop/workflows/process-order/runs"
    async with gateway({"run.StartRun": seen.method}) as client:
        body = b'{"data":' + ODD_JSON + b',"idempotency_key":"k","test":true,"delay":"1.5s","tags":["a","b"]}'
        made = await client.call("POST", path, raw=body)
        request = seen.request
        seen.answer.existing = True
        found = await client.call("POST", path)
    assert (made.status, made.headers["Location"]) == (201, "/api/runs/01J0000000000000000000000A")
    assert made.json["status"] == "queued"
    assert (request.project, request.workflow, request.data) == ("shop", "process-order", ODD_JSON)
    assert (request.idempotency_key, request.test, list(request.tags)) == ("k", True, ["a", "b"])
    assert request.delay.ToMilliseconds() == 1_500
    assert found.status == 200
    assert (seen.request.data, seen.request.HasField("idempotency_key")) == (b"", False)
    assert seen.request.WhichOneof("due") is None


async def test_lists_are_paged_and_filtered() -> None:
    answer = run_service_pb2.ListRunsResponse(runs=[a_run()], next_page_token="next")
    seen = Seen(answer)
    query = "limit=7&cursor=abc&workflow=w&status=failed&status=timed_out&from=2025-10-09T08:53:20.123Z&q=k&tag=a&tag=b"
    async with gateway({"run.ListRuns": seen.method}) as client:
        reply = await client.call("GET", f"/api/projects/shop/runs?{query}")
    assert reply.json["next_cursor"] == "next"
    assert [run["id"] for run in reply.json["data"]] == ["01J0000000000000000000000A"]
    request = seen.request
    assert (request.project, request.page_size, request.page_token, request.workflow) == ("shop", 7, "abc", "w")
    assert list(request.states) == [resources_pb2.RUN_STATE_FAILED, resources_pb2.RUN_STATE_TIMED_OUT]
    assert request.since.ToMilliseconds() == AT
    assert (request.query, list(request.tags), request.HasField("until")) == ("k", ["a", "b"], False)


async def test_events_are_listed_and_shown() -> None:
    event = resources_pb2.Event(
        id="01E", name="order.created", ts=AT, event_id="o-1", source=resources_pb2.EVENT_SOURCE_API, data=ODD_JSON
    )
    event.effects.started_run_ids.append("01R")
    event.effects.skipped.add(workflow="w", project="p", reason="paused")
    listed = Seen(event_service_pb2.ListEventsResponse(events=[event]))
    methods = {
        "event.ListEvents": listed.method,
        "event.GetEvent": Seen(event_service_pb2.GetEventResponse(event=event)).method,
    }
    async with gateway(methods) as client:
        page = await client.call("GET", "/api/events?name=order.&source=workflow&project_id=shop")
        one = await client.call("GET", "/api/events/01E")
    assert page.json["next_cursor"] is None
    assert page.json["data"][0]["event_id"] == "o-1"
    assert (listed.request.name_prefix, listed.request.project) == ("order.", "shop")
    assert listed.request.source == resources_pb2.EVENT_SOURCE_WORKFLOW
    assert ODD_JSON in one.body
    assert one.json["runs"] == ["01R"]
    assert one.json["skipped"] == [{"workflow": "w", "project": "p", "reason": "paused", "run_id": None}]


async def test_a_result_is_waited_for() -> None:
    answer = run_service_pb2.AwaitRunResponse(run_id="r", state=resources_pb2.RUN_STATE_RUNNING)
    seen = Seen(answer)
    async with gateway({"run.AwaitRun": seen.method}) as client:
        still = await client.call("GET", "/api/runs/r/result?wait=30")
        assert seen.request.wait.ToSeconds() == 30
        answer.state, answer.ended, answer.output = resources_pb2.RUN_STATE_COMPLETED, True, ODD_JSON
        done = await client.call("GET", "/api/runs/r/result")
    assert (still.status, still.json["status"], still.json["ended"]) == (202, "running", False)
    assert (done.status, done.json["status"], done.json["ended"]) == (200, "completed", True)
    assert ODD_JSON in done.body


async def test_a_run_is_cancelled_and_an_ended_one_is_a_conflict() -> None:
    seen = Seen(run_service_pb2.CancelRunResponse(run=a_run(state=resources_pb2.RUN_STATE_CANCELLED)))

    async def refuse(request: Any, context: Any) -> Any:
        raise Conflict("the run has ended", reason="RUN_ENDED")

    async with gateway({"run.CancelRun": seen.method, "run.RetryRun": refuse}) as client:
        plain = await client.call("POST", "/api/runs/r/cancel")
        assert seen.request.children == run_service_pb2.CHILDREN_POLICY_CANCEL
        keep = await client.call("POST", "/api/runs/r/cancel", body={"children": "keep"})
        assert seen.request.children == run_service_pb2.CHILDREN_POLICY_KEEP
        ended = await client.call("POST", "/api/runs/r/retry")
    assert (plain.status, plain.json["status"], keep.status) == (200, "cancelled", 200)
    assert ended.problem(409)["type"].endswith("/run-ended")


async def test_definitions_are_declared_listed_paused_and_synced() -> None:
    workflow = workflow_service_pb2.Workflow(
        name="w",
        project="shop",
        definition=b'{"name":"w","triggers":[{"event":"a"}],"retries":3,"concurrency":null}',
        is_active=True,
        source=workflow_service_pb2.DEFINITION_SOURCE_API,
        version="ff",
        created_at=timestamp(AT),
    )
    sync = function_service_pb2.SyncStatus(
        state=function_service_pb2.SYNC_STATE_SYNCED, at=timestamp(AT), warnings=["x"], sdk=b'{"name":"py"}'
    )
    archived = [
        workflow_service_pb2.ArchivedWorkflow(name="old", active_runs=0),
        workflow_service_pb2.ArchivedWorkflow(name="slow", at_least=True),
    ]
    declared = Seen(workflow_service_pb2.DeclareWorkflowsResponse(workflows=[workflow], archived=archived))
    updated = Seen(workflow_service_pb2.UpdateWorkflowResponse(workflow=workflow))
    methods = {
        "workflow.DeclareWorkflows": declared.method,
        "workflow.ListWorkflows": Seen(workflow_service_pb2.ListWorkflowsResponse(workflows=[workflow])).method,
        "workflow.UpdateWorkflow": updated.method,
        "function.SyncWorkflows": Seen(
            function_service_pb2.SyncWorkflowsResponse(sync=sync, workflows=[workflow], archived=archived)
        ).method,
    }
    body = b'{"workflows": [ {"name":"w"} ]}'
    async with gateway(methods) as client:
        put = await client.call("PUT", "/api/projects/shop/workflows", raw=body)
        listed = await client.call("GET", "/api/projects/shop/workflows?archived=1")
        paused = await client.call("PATCH", "/api/projects/shop/workflows/w", body={"is_active": False})
        synced = await client.call("POST", "/api/projects/shop/workflows/sync")
    assert (declared.request.project, declared.request.definitions) == ("shop", body)
    assert put.json["archived"] == synced.json["archived"]
    assert put.json["archived"] == [
        {"name": "old", "active_runs": 0, "at_least": False},
        {"name": "slow", "active_runs": None, "at_least": True},
    ]
    assert put.json == {**listed.json, "archived": put.json["archived"]}
    assert put.json["data"][0] == {
        "name": "w",
        "project": "shop",
        "is_active": True,
        "archived_at": None,
        "source": "api",
        "version": "ff",
        "created_at": AT_TEXT,
        "updated_at": None,
        "triggers": [{"event": "a"}],
        "retries": 3,
        "concurrency": None,
    }
    assert (paused.status, updated.request.HasField("is_active"), updated.request.is_active) == (200, True, False)
    assert synced.json["sync"]["status"] == "synced"
    assert synced.json["sync"]["sdk"] == {"name": "py"}
    assert synced.json["workflows"] == put.json["data"]


async def test_the_definitions_file_goes_on_as_it_is() -> None:
    stored = Seen(workflow_service_pb2.StoreDefinitionsFileResponse(workflows=2, warnings=["sdk: unknown field"]))
    body = b'[ {"name":"w"} , {"name":"v", "x":1.0}]'
    async with gateway({"workflow.StoreDefinitionsFile": stored.method}) as client:
        put = await client.call("PUT", "/api/projects/shop/definitions-file", raw=body)
    assert (put.status, put.json) == (200, {"workflows": 2, "warnings": ["sdk: unknown field"]})
    assert (stored.request.project, stored.request.definitions) == ("shop", body)


async def test_the_function_of_a_project_is_shown_and_changed() -> None:
    app = function_service_pb2.App(project="shop", endpoint_url="https://f.example", key_fingerprint="abcd")
    archived = workflow_service_pb2.ArchivedWorkflow(name="old", active_runs=3)
    updated = Seen(function_service_pb2.UpdateAppResponse(app=app, archived=[archived]))
    key = function_service_pb2.RevealSigningKeyResponse(signing_key="secret", key_fingerprint="abcd")
    methods = {
        "function.GetApp": Seen(function_service_pb2.GetAppResponse(app=app)).method,
        "function.UpdateApp": updated.method,
        "function.RevealSigningKey": Seen(key).method,
    }
    path = "/api/projects/shop/workflows/app"
    async with gateway(methods) as client:
        shown = await client.call("GET", path)
        changed = await client.call("PATCH", path, body={"endpoint_url": "https://f.example"})
        assert updated.request.endpoint_url == "https://f.example"
        await client.call("PATCH", path, body={"endpoint_url": None})
        assert (updated.request.HasField("endpoint_url"), updated.request.endpoint_url) == (True, "")
        revealed = await client.call("GET", f"{path}/signing-key")
    assert (shown.json["endpoint_url"], shown.json["sync"]) == ("https://f.example", None)
    gone = [{"name": "old", "active_runs": 3, "at_least": False}]
    assert changed.json == {**shown.json, "archived": gone}
    assert revealed.json == {"signing_key": "secret", "key_fingerprint": "abcd", "previous_signing_key": None}
    assert revealed.headers["Cache-Control"] == "no-store"


async def test_projects_are_made_listed_and_deleted_for_the_chosen_tenant() -> None:
    project = access_service_pb2.Project(id="1", slug="shop", name="Shop", created_at=timestamp(AT))
    project.config.trigger_type = access_service_pb2.TRIGGER_TYPE_WORKFLOW
    made = Seen(access_service_pb2.CreateProjectResponse(project=project))
    methods = {
        "access.CreateProject": made.method,
        "access.ListProjects": Seen(access_service_pb2.ListProjectsResponse(projects=[project])).method,
        "access.DeleteProject": Seen(access_service_pb2.DeleteProjectResponse()).method,
    }
    async with gateway(methods) as client:
        created = await client.call(
            "POST",
            "/api/projects",
            body={"slug": "shop", "config": {"trigger_type": "workflow", "queue_stream": "orders"}},
            headers={"X-Tenant-ID": "acme"},
        )
        listed = await client.call("GET", "/api/projects")
        deleted = await client.call("DELETE", "/api/projects/shop")
    assert made.tenant == 2
    assert made.request.config.trigger_type == access_service_pb2.TRIGGER_TYPE_WORKFLOW
    assert made.request.config.queue_stream == "orders"
    assert created.status == 201
    assert created.json["config"] == {"trigger_type": "workflow", "queue_stream": None}
    assert listed.json == {"data": [created.json], "next_cursor": None}
    assert (deleted.status, deleted.body) == (204, b"")


@pytest.mark.parametrize(
    ("config", "stream"), [({"queue_stream": None}, ""), ({"queue_stream": "orders"}, "orders"), ({}, None)]
)
async def test_a_queue_stream_is_set_removed_with_null_or_left(config: dict[str, Any], stream: str | None) -> None:
    project = access_service_pb2.Project(id="1", slug="shop", name="Shop", created_at=timestamp(AT))
    seen = Seen(access_service_pb2.UpdateProjectResponse(project=project))
    async with gateway({"access.UpdateProject": seen.method}) as client:
        answer = await client.call("PATCH", "/api/projects/shop", body={"config": config})
    assert answer.status == 200
    sent = seen.request.config
    assert (sent.queue_stream if sent.HasField("queue_stream") else None) == stream


async def test_a_sync_answers_what_is_declared_without_the_archived() -> None:
    workflows = [
        workflow_service_pb2.Workflow(name="kept", project="shop"),
        workflow_service_pb2.Workflow(name="gone", project="shop", archived_at=timestamp(AT)),
    ]
    answer = function_service_pb2.SyncWorkflowsResponse(workflows=workflows)
    async with gateway({"function.SyncWorkflows": Seen(answer).method}) as client:
        synced = await client.call("POST", "/api/projects/shop/workflows/sync")
    assert [each["name"] for each in synced.json["workflows"]] == ["kept"]
