"""Routes of definitions and of the function behind them (engine section 3)."""

from __future__ import annotations

from typing import Any

import msgspec
from runr.workflows.v1 import function_service_pb2, workflow_service_pb2

from services.gateway.kinds import BOOLEAN, PAGE, flag_param, nullable, text
from services.gateway.route import Answer, Input, RawBody, Route
from services.gateway.shape import Field, Shape
from services.gateway.views.json_parts import Page, page
from services.gateway.views.project import (
    AppView,
    ChangedAppView,
    SigningKeyView,
    SyncView,
    app_view,
    changed_app_view,
    signing_key_view,
    sync_view,
)
from services.gateway.views.workflow import ArchivedView, DeclaredView, WorkflowView, archived_views, workflow_view

_WORKFLOWS = "/runr.workflows.v1.WorkflowService/"
_FUNCTIONS = "/runr.workflows.v1.FunctionService/"
_SYNC_TIMEOUT_S = 120.0


_DEFINITION = {
    "type": "object",
    "description": "One workflow: its name, triggers, limits. Its fields are in the engine's page, section 1.",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 100}},
    "required": ["name"],
}
_DEFINITIONS = {"type": "array", "items": _DEFINITION}
_WHOLE = {"type": "object", "properties": {"workflows": _DEFINITIONS}, "required": ["workflows"]}
_EXAMPLE = {"workflows": [{"name": "process-order", "triggers": [{"event": "order.created"}], "retries": 3}]}
_LIST = RawBody(schema=_WHOLE, example=_EXAMPLE)
_FILE = RawBody(schema={"anyOf": [_WHOLE, _DEFINITIONS]}, example=_EXAMPLE)


class SyncedView(msgspec.Struct, kw_only=True):
    """The answer to a sync: how it went, the workflows that are declared after it, and those that it has archived."""

    sync: SyncView
    workflows: list[dict[str, Any]]
    archived: list[ArchivedView]


class DefinitionsFileView(msgspec.Struct, kw_only=True):
    """The answer to a stored definitions file: how many workflows it names, and what was passed over in it."""

    workflows: int
    warnings: list[str]


def _declare_request(found: Input) -> workflow_service_pb2.DeclareWorkflowsRequest:
    return workflow_service_pb2.DeclareWorkflowsRequest(project=found.path["project"], definitions=found.raw)


def _file_request(found: Input) -> workflow_service_pb2.StoreDefinitionsFileRequest:
    return workflow_service_pb2.StoreDefinitionsFileRequest(project=found.path["project"], definitions=found.raw)


def _file_answer(response: Any, _: Input) -> Answer:
    return Answer(DefinitionsFileView(workflows=response.workflows, warnings=list(response.warnings)))


def _list_request(found: Input) -> workflow_service_pb2.ListWorkflowsRequest:
    return workflow_service_pb2.ListWorkflowsRequest(
        project=found.path["project"],
        page_size=found.query.get("limit", 0),
        page_token=found.query.get("cursor", ""),
        include_archived=found.query.get("archived", False),
    )


def _list_answer(response: Any, _: Input) -> Answer:
    next_page_token = getattr(response, "next_page_token", "")
    return Answer(page([workflow_view(workflow) for workflow in response.workflows], next_page_token))


def _declared_answer(response: Any, _: Input) -> Answer:
    workflows: list[Any] = [workflow_view(workflow) for workflow in response.workflows]
    return Answer(DeclaredView(data=workflows, next_cursor=None, archived=archived_views(response.archived)))


def _workflow_answer(response: Any, _: Input) -> Answer:
    return Answer(workflow_view(response.workflow))


def _get_request(found: Input) -> workflow_service_pb2.GetWorkflowRequest:
    return workflow_service_pb2.GetWorkflowRequest(project=found.path["project"], workflow=found.path["workflow"])


def _update_request(found: Input) -> workflow_service_pb2.UpdateWorkflowRequest:
    return workflow_service_pb2.UpdateWorkflowRequest(
        project=found.path["project"], workflow=found.path["workflow"], is_active=found.body.get("is_active")
    )


def _sync_answer(response: Any, _: Input) -> Answer:
    workflows = [workflow_view(each) for each in response.workflows if not each.HasField("archived_at")]
    archived = archived_views(response.archived)
    return Answer(SyncedView(sync=sync_view(response.sync), workflows=workflows, archived=archived))


def _app_answer(response: Any, found: Input) -> Answer:
    return Answer(app_view(response.app, own_url=found.own_url))


def _changed_app_answer(response: Any, found: Input) -> Answer:
    return Answer(changed_app_view(response.app, response.archived, own_url=found.own_url))


def _update_app_request(found: Input) -> function_service_pb2.UpdateAppRequest:
    request = function_service_pb2.UpdateAppRequest(project=found.path["project"])
    if "endpoint_url" in found.body:
        request.endpoint_url = found.body["endpoint_url"] or ""
    return request


ROUTES = (
    Route(
        method="GET",
        path="/projects/{project}/workflows",
        rpc=_WORKFLOWS + "ListWorkflows",
        summary="List a project's workflows with triggers, limits and state",
        request=_list_request,
        answer=_list_answer,
        view=Page[WorkflowView],
        has_etag=True,
        query=(*PAGE, flag_param("archived")),
    ),
    Route(
        method="PUT",
        path="/projects/{project}/workflows",
        rpc=_WORKFLOWS + "DeclareWorkflows",
        summary="Declare the project's whole list of workflows",
        request=_declare_request,
        answer=_declared_answer,
        view=DeclaredView,
        raw_body=True,
        raw=_LIST,
    ),
    Route(
        method="PUT",
        path="/projects/{project}/definitions-file",
        rpc=_WORKFLOWS + "StoreDefinitionsFile",
        summary="Store the list that a sync falls back to",
        request=_file_request,
        answer=_file_answer,
        view=DefinitionsFileView,
        raw_body=True,
        raw=_FILE,
    ),
    Route(
        method="POST",
        path="/projects/{project}/workflows/sync",
        rpc=_FUNCTIONS + "SyncWorkflows",
        summary="Ask the function for its workflows and declare them",
        request=lambda found: function_service_pb2.SyncWorkflowsRequest(project=found.path["project"]),
        answer=_sync_answer,
        view=SyncedView,
        body=Shape(()),
        timeout_s=_SYNC_TIMEOUT_S,
    ),
    Route(
        method="GET",
        path="/projects/{project}/workflows/app",
        rpc=_FUNCTIONS + "GetApp",
        summary="Endpoint, key fingerprint and sync status of the function",
        request=lambda found: function_service_pb2.GetAppRequest(project=found.path["project"]),
        answer=_app_answer,
        view=AppView,
        has_etag=True,
    ),
    Route(
        method="PATCH",
        path="/projects/{project}/workflows/app",
        rpc=_FUNCTIONS + "UpdateApp",
        summary="Set the endpoint override, or remove it with null",
        request=_update_app_request,
        answer=_changed_app_answer,
        view=ChangedAppView,
        body=Shape((Field("endpoint_url", nullable(text(2_000)), required=True),)),
    ),
    Route(
        method="POST",
        path="/projects/{project}/workflows/app/rotate-key",
        rpc=_FUNCTIONS + "RotateSigningKey",
        summary="Make a new signing key; the old one signs along for a day",
        request=lambda found: function_service_pb2.RotateSigningKeyRequest(project=found.path["project"]),
        answer=_app_answer,
        view=AppView,
        body=Shape(()),
    ),
    Route(
        method="GET",
        path="/projects/{project}/workflows/app/signing-key",
        rpc=_FUNCTIONS + "RevealSigningKey",
        summary="Reveal the signing key (audited)",
        request=lambda found: function_service_pb2.RevealSigningKeyRequest(project=found.path["project"]),
        answer=lambda response, _: Answer(signing_key_view(response), headers={"Cache-Control": "no-store"}),
        view=SigningKeyView,
    ),
    Route(
        method="GET",
        path="/projects/{project}/workflows/{workflow}",
        rpc=_WORKFLOWS + "GetWorkflow",
        summary="One workflow",
        request=_get_request,
        answer=_workflow_answer,
        view=WorkflowView,
        has_etag=True,
    ),
    Route(
        method="PATCH",
        path="/projects/{project}/workflows/{workflow}",
        rpc=_WORKFLOWS + "UpdateWorkflow",
        summary="Pause a workflow (is_active: false) or let it go on",
        request=_update_request,
        answer=_workflow_answer,
        view=WorkflowView,
        body=Shape((Field("is_active", BOOLEAN, required=True),)),
    ),
)
