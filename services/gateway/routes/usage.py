"""Routes of usage (engine section 3)."""

from __future__ import annotations

from runr.workflows.v1 import workflow_service_pb2

from services.core.domain.usage_record import parse_day
from services.gateway.route import Answer, Input, Route
from services.gateway.shape import Param
from services.gateway.views.usage import UsageView, usage_view

_RPC = "/runr.workflows.v1.WorkflowService/GetUsage"


def _day_param(name: str) -> Param:
    return Param(name, lambda text: parse_day("", text).isoformat(), {"type": "string", "format": "date"})


def _request(found: Input) -> workflow_service_pb2.GetUsageRequest:
    return workflow_service_pb2.GetUsageRequest(
        project=found.path.get("project", ""),
        from_day=found.query.get("from", ""),
        to_day=found.query.get("to", ""),
    )


def _route(path: str, summary: str) -> Route:
    return Route(
        method="GET",
        path=path,
        rpc=_RPC,
        summary=summary,
        request=_request,
        answer=lambda response, _: Answer(usage_view(response)),
        view=UsageView,
        query=(_day_param("from"), _day_param("to")),
        names={"from_day": "from", "to_day": "to"},
    )


ROUTES = (
    _route("/projects/{project}/workflow-usage", "Usage of a project: totals, by day, by workflow"),
    _route("/workflow-usage", "Usage of the tenant: totals, by day, by workflow"),
)
