"""Routes of cron triggers (engine section 3)."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import schedule_service_pb2 as pb

from services.core.domain.errors import NotFound
from services.core.rpc import convert
from services.gateway.kinds import BOOLEAN, PAGE, TIME
from services.gateway.route import Answer, Input, Route
from services.gateway.routes.runs import location
from services.gateway.shape import Field, Shape
from services.gateway.views.json_parts import Page, page
from services.gateway.views.run import RunView, run_view
from services.gateway.views.schedule import BackfillView, ScheduleView, backfill_view, schedule_view

_SERVICE = "/runr.workflows.v1.ScheduleService/"
_ONE = "/projects/{project}/schedules/{workflow}/{trigger}"
_MAX_DIGITS = 4
_BACKFILL_TIMEOUT_S = 120.0


def _key(found: Input) -> pb.ScheduleKey:
    trigger = found.path["trigger"]
    if not trigger.isascii() or not trigger.isdigit() or len(trigger) > _MAX_DIGITS:
        raise NotFound(f"there is no cron trigger {trigger[:20]!r}: it is the trigger's index in the definition")
    return pb.ScheduleKey(project=found.path["project"], workflow=found.path["workflow"], trigger=int(trigger))


def _list_request(found: Input) -> pb.ListSchedulesRequest:
    return pb.ListSchedulesRequest(
        project=found.path["project"],
        page_size=found.query.get("limit", 0),
        page_token=found.query.get("cursor", ""),
    )


def _list_answer(response: Any, _: Input) -> Answer:
    return Answer(page([schedule_view(each) for each in response.schedules], response.next_page_token))


def _backfill_request(found: Input) -> pb.BackfillScheduleRequest:
    return pb.BackfillScheduleRequest(
        key=_key(found),
        since=convert.timestamp(found.body["from"]),
        until=convert.timestamp(found.body.get("to")),
        dry_run=found.body.get("dry_run", False),
    )


def _trigger_answer(response: Any, _: Input) -> Answer:
    status = 200 if response.existing else 201
    return Answer(run_view(response.run), status=status, headers=location(response.run))


ROUTES = (
    Route(
        method="GET",
        path="/projects/{project}/schedules",
        rpc=_SERVICE + "ListSchedules",
        summary="List cron triggers with their next five fire times",
        request=_list_request,
        answer=_list_answer,
        view=Page[ScheduleView],
        has_etag=True,
        query=PAGE,
    ),
    Route(
        method="PATCH",
        path=_ONE,
        rpc=_SERVICE + "UpdateSchedule",
        summary="Pause a cron trigger (is_active: false) or let it go on",
        request=lambda found: pb.UpdateScheduleRequest(key=_key(found), is_active=found.body["is_active"]),
        answer=lambda response, _: Answer(schedule_view(response.schedule)),
        view=ScheduleView,
        body=Shape((Field("is_active", BOOLEAN, required=True),)),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/trigger",
        rpc=_SERVICE + "TriggerSchedule",
        summary="Fire a cron trigger now (201), or get the run that the idempotency expression led to (200)",
        request=lambda found: pb.TriggerScheduleRequest(key=_key(found)),
        answer=_trigger_answer,
        view=RunView,
        statuses=(201, 200),
        body=Shape(()),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/backfill",
        rpc=_SERVICE + "BackfillSchedule",
        summary="Fire a cron trigger for every tick of a past range that has not fired; at most 1,000",
        request=_backfill_request,
        answer=lambda response, _: Answer(backfill_view(response.job)),
        view=BackfillView,
        body=Shape((Field("from", TIME, required=True), Field("to", TIME), Field("dry_run", BOOLEAN))),
        timeout_s=_BACKFILL_TIMEOUT_S,
    ),
)
