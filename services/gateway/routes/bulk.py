"""Routes of bulk jobs: cancel, retry or replay many runs (engine section 3)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from runr.workflows.v1 import resources_pb2
from runr.workflows.v1 import schedule_service_pb2 as pb

from services.core.domain.bulk_job import MAX_IDS
from services.core.rpc import convert
from services.gateway.kinds import BOOLEAN, PAGE, TIME, enums, nested, one_of, text, texts
from services.gateway.route import Answer, Input, Route
from services.gateway.shape import Field, Shape
from services.gateway.views.bulk import BulkJobView, BulkStartView, bulk_job_view, bulk_start_view
from services.gateway.views.json_parts import Page, page

_SERVICE = "/runr.workflows.v1.ScheduleService/"
_NAMES = {
    **{"filter.states": "filter.status", "filter.run_ids": "filter.ids", "filter.query": "filter.q"},
    **{"filter.since": "filter.from", "filter.until": "filter.to"},
}
_ID_BYTES = 26

_FILTER = Shape(
    (
        Field("workflow", text(255)),
        Field("status", enums(resources_pb2.RunState)),
        Field("from", TIME),
        Field("to", TIME),
        Field("q", text(255)),
        Field("tags", texts(10, 100)),
        Field("ids", texts(MAX_IDS, _ID_BYTES)),
    )
)
_START = Shape(
    (
        Field("action", one_of("cancel", "retry", "replay"), required=True),
        Field("filter", nested(_FILTER), required=True),
        Field("dry_run", BOOLEAN),
    )
)


def _start_request(found: Input) -> pb.StartBulkJobRequest:
    asked = found.body["filter"]
    return pb.StartBulkJobRequest(
        project=found.path["project"],
        action=convert.number(pb.BulkAction, found.body["action"]),
        filter=pb.RunFilter(
            workflow=asked.get("workflow", ""),
            states=asked.get("status", ()),
            since=convert.timestamp(asked.get("from")),
            until=convert.timestamp(asked.get("to")),
            query=asked.get("q", ""),
            tags=asked.get("tags", ()),
            run_ids=asked.get("ids", ()),
        ),
        dry_run=found.body.get("dry_run", False),
    )


def _start_answer(response: Any, _: Input) -> Answer:
    view = bulk_start_view(response)
    if view.id is None:
        return Answer(view)
    return Answer(view, status=202, headers={"Location": f"/api/bulk-jobs/{quote(view.id, safe='')}"})


def _list_request(found: Input) -> pb.ListBulkJobsRequest:
    return pb.ListBulkJobsRequest(
        project=found.path["project"],
        page_size=found.query.get("limit", 0),
        page_token=found.query.get("cursor", ""),
    )


def _list_answer(response: Any, _: Input) -> Answer:
    return Answer(page([bulk_job_view(job) for job in response.jobs], response.next_page_token))


ROUTES = (
    Route(
        method="POST",
        path="/projects/{project}/runs/bulk",
        rpc=_SERVICE + "StartBulkJob",
        summary="Cancel, retry or replay all runs that a filter finds, in the background (202), or count them (200)",
        request=_start_request,
        answer=_start_answer,
        view=BulkStartView,
        statuses=(202, 200),
        body=_START,
        names=_NAMES,
    ),
    Route(
        method="GET",
        path="/projects/{project}/runs/bulk",
        rpc=_SERVICE + "ListBulkJobs",
        summary="List bulk jobs, newest first",
        request=_list_request,
        answer=_list_answer,
        view=Page[BulkJobView],
        query=PAGE,
    ),
    Route(
        method="GET",
        path="/bulk-jobs/{job_id}",
        rpc=_SERVICE + "GetBulkJob",
        summary="One bulk job with its progress",
        request=lambda found: pb.GetBulkJobRequest(job_id=found.path["job_id"]),
        answer=lambda response, _: Answer(bulk_job_view(response.job)),
        view=BulkJobView,
    ),
    Route(
        method="POST",
        path="/bulk-jobs/{job_id}/stop",
        rpc=_SERVICE + "StopBulkJob",
        summary="Stop a bulk job; what it has done stays done",
        request=lambda found: pb.StopBulkJobRequest(job_id=found.path["job_id"]),
        answer=lambda response, _: Answer(bulk_job_view(response.job)),
        view=BulkJobView,
        body=Shape(()),
    ),
)
