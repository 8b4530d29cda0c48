"""Routes of projects (engine section 3)."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import access_service_pb2

from services.core.rpc import convert
from services.gateway.kinds import PAGE, nested, nullable, one_of, text
from services.gateway.route import Answer, Input, Route
from services.gateway.shape import Field, Shape
from services.gateway.views.json_parts import Page, page
from services.gateway.views.project import ProjectView, project_view

_SERVICE = "/runr.workflows.v1.AccessService/"

# "event" is a word here so that the service can refuse it with its own reason.
_CONFIG = nested(
    Shape(
        (
            Field("trigger_type", one_of("workflow", "http", "schedule", "queue", "event")),
            Field("queue_stream", nullable(text(200))),
        )
    )
)
_CREATE = Shape((Field("slug", text(100), required=True), Field("name", text(200)), Field("config", _CONFIG)))
_UPDATE = Shape((Field("name", text(200)), Field("config", _CONFIG)))


def _config(found: Input) -> access_service_pb2.ProjectConfig | None:
    config = found.body.get("config")
    if config is None:
        return None
    trigger_type = config.get("trigger_type")
    made = access_service_pb2.ProjectConfig(
        trigger_type=convert.number(access_service_pb2.TriggerType, trigger_type) if trigger_type else None
    )
    if "queue_stream" in config:
        # Null removes the stream, which is an empty text behind here; what is absent stays as it is.
        made.queue_stream = config["queue_stream"] or ""
    return made


def _list_request(found: Input) -> access_service_pb2.ListProjectsRequest:
    return access_service_pb2.ListProjectsRequest(
        page_size=found.query.get("limit", 0), page_token=found.query.get("cursor", "")
    )


def _list_answer(response: Any, _: Input) -> Answer:
    return Answer(page([project_view(project) for project in response.projects], response.next_page_token))


def _create_request(found: Input) -> access_service_pb2.CreateProjectRequest:
    return access_service_pb2.CreateProjectRequest(
        slug=found.body["slug"], name=found.body.get("name", ""), config=_config(found)
    )


def _update_request(found: Input) -> access_service_pb2.UpdateProjectRequest:
    return access_service_pb2.UpdateProjectRequest(
        project=found.path["project"], name=found.body.get("name"), config=_config(found)
    )


def _project_answer(response: Any, _: Input) -> Answer:
    return Answer(project_view(response.project))


ROUTES = (
    Route(
        method="GET",
        path="/projects",
        rpc=_SERVICE + "ListProjects",
        summary="List projects",
        request=_list_request,
        answer=_list_answer,
        view=Page[ProjectView],
        has_etag=True,
        query=PAGE,
    ),
    Route(
        method="POST",
        path="/projects",
        rpc=_SERVICE + "CreateProject",
        summary="Make a project",
        request=_create_request,
        answer=lambda response, _: Answer(project_view(response.project), status=201),
        view=ProjectView,
        statuses=(201,),
        body=_CREATE,
    ),
    Route(
        method="GET",
        path="/projects/{project}",
        rpc=_SERVICE + "GetProject",
        summary="One project",
        request=lambda found: access_service_pb2.GetProjectRequest(project=found.path["project"]),
        answer=_project_answer,
        view=ProjectView,
        has_etag=True,
    ),
    Route(
        method="PATCH",
        path="/projects/{project}",
        rpc=_SERVICE + "UpdateProject",
        summary="Change a project's name or configuration",
        request=_update_request,
        answer=_project_answer,
        view=ProjectView,
        body=_UPDATE,
    ),
    Route(
        method="DELETE",
        path="/projects/{project}",
        rpc=_SERVICE + "DeleteProject",
        summary="Delete a project with its workflows and runs",
        request=lambda found: access_service_pb2.DeleteProjectRequest(project=found.path["project"]),
        answer=lambda _response, _: Answer(None, status=204),
        view=None,
        statuses=(204,),
    ),
)
