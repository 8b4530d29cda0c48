"""Routes of runs (engine section 3)."""

from __future__ import annotations

import re
from typing import Any

from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.domain.errors import InvalidInput
from services.core.rpc import convert
from services.gateway.kinds import (
    BOOLEAN,
    DURATION,
    JSON_OBJECT,
    PAGE,
    TIME,
    enum_param,
    one_of,
    seconds_param,
    text,
    text_param,
    texts,
    time_param,
)
from services.gateway.route import Answer, Events, Input, Perform, Route, ServerEvent
from services.gateway.shape import Field, Shape
from services.gateway.views.json_parts import Page, page
from services.gateway.views.run import (
    ResultView,
    RunChangeView,
    RunDetailView,
    RunView,
    result_view,
    run_change_view,
    run_detail_view,
    run_view,
)

_SERVICE = "/runr.workflows.v1.RunService/"
_MAX_WAIT_S = 60
_WAIT_MARGIN_S = 10.0
_CURSOR = re.compile(r"[0-9a-z-]{1,100}")

_START = Shape(
    (
        Field("data", JSON_OBJECT),
        Field("idempotency_key", text(255)),
        Field("test", BOOLEAN),
        Field("delay", DURATION),
        Field("at", TIME),
        Field("tags", texts(10, 100)),
    )
)
_CANCEL = Shape((Field("children", one_of("cancel", "keep")),))
_REPLAY = Shape((Field("from_step", text(255)), Field("data", JSON_OBJECT)))


def _start_request(found: Input) -> run_service_pb2.StartRunRequest:
    body = found.body
    if "delay" in body and "at" in body:
        raise InvalidInput.of("at", "delay and at exclude each other: give one of them")
    given = dict(body)
    if "delay" in given:
        given["delay"] = convert.duration(given["delay"])
    if "at" in given:
        given["at"] = convert.timestamp(given["at"])
    # The fields of the body are named as those of the message.
    return run_service_pb2.StartRunRequest(project=found.path["project"], workflow=found.path["workflow"], **given)


def _start_answer(response: Any, _: Input) -> Answer:
    return Answer(run_view(response.run), status=200 if response.existing else 201, headers=location(response.run))


def _replay_answer(response: Any, _: Input) -> Answer:
    return Answer(run_view(response.run), status=201, headers=location(response.run))


def location(run: resources_pb2.Run) -> dict[str, str]:
    """The header that names a run which was started."""
    return {"Location": f"/api/runs/{run.id}"}


def _run_answer(response: Any, _: Input) -> Answer:
    return Answer(run_view(response.run))


async def _whole_run(perform: Perform, request: Any) -> Any:
    """All pages of a run's steps, put into the first answer."""
    whole = await perform(request)
    while whole.next_page_token:
        more = await perform(run_service_pb2.GetRunRequest(run_id=request.run_id, page_token=whole.next_page_token))
        whole.steps.extend(more.steps)
        whole.next_page_token = more.next_page_token
    return whole


def _list_request(found: Input) -> run_service_pb2.ListRunsRequest:
    query = found.query
    return run_service_pb2.ListRunsRequest(
        project=found.path["project"],
        page_size=query.get("limit", 0),
        page_token=query.get("cursor", ""),
        workflow=query.get("workflow", ""),
        states=query.get("status", ()),
        since=convert.timestamp(query.get("from")),
        until=convert.timestamp(query.get("to")),
        query=query.get("q", ""),
        tags=query.get("tag", ()),
    )


def _list_answer(response: Any, _: Input) -> Answer:
    return Answer(page([run_view(run) for run in response.runs], response.next_page_token))


def _result_request(found: Input) -> run_service_pb2.AwaitRunRequest:
    wait = convert.duration(found.query.get("wait", 0) * 1_000)
    return run_service_pb2.AwaitRunRequest(run_id=found.path["run_id"], wait=wait)


def _result_answer(response: Any, _: Input) -> Answer:
    return Answer(result_view(response), status=200 if response.ended else 202)


def _cancel_request(found: Input) -> run_service_pb2.CancelRunRequest:
    children = convert.number(run_service_pb2.ChildrenPolicy, found.body.get("children", "cancel"))
    return run_service_pb2.CancelRunRequest(run_id=found.path["run_id"], children=children)


def _replay_request(found: Input) -> run_service_pb2.ReplayRunRequest:
    return run_service_pb2.ReplayRunRequest(
        run_id=found.path["run_id"], from_step=found.body.get("from_step"), data=found.body.get("data")
    )


def _resumed(request: run_service_pb2.WatchRunRequest, cursor: str) -> run_service_pb2.WatchRunRequest:
    # What is no cursor of ours is none to the service either, and may be text that no message can hold.
    known = _CURSOR.fullmatch(cursor) is not None
    return run_service_pb2.WatchRunRequest(run_id=request.run_id, cursor=cursor if known else "")


def _change_event(response: Any) -> ServerEvent:
    name = "end" if response.ended else "change"
    return ServerEvent(name, response.cursor, run_change_view(response), is_last=response.ended)


ROUTES = (
    Route(
        method="POST",
        path="/projects/{project}/workflows/{workflow}/runs",
        rpc=_SERVICE + "StartRun",
        summary="Start a run (201), or get the one that the idempotency key has (200)",
        request=_start_request,
        answer=_start_answer,
        view=RunView,
        statuses=(201, 200),
        body=_START,
    ),
    Route(
        method="GET",
        path="/projects/{project}/runs",
        rpc=_SERVICE + "ListRuns",
        summary="List runs, newest first",
        request=_list_request,
        answer=_list_answer,
        view=Page[RunView],
        query=(
            *PAGE,
            text_param("workflow"),
            enum_param("status", resources_pb2.RunState, many=True),
            time_param("from"),
            time_param("to"),
            text_param("q"),
            text_param("tag", many=True),
        ),
    ),
    Route(
        method="GET",
        path="/runs/{run_id}",
        rpc=_SERVICE + "GetRun",
        summary="One run with its steps, attempts, waits and children",
        request=lambda found: run_service_pb2.GetRunRequest(run_id=found.path["run_id"]),
        answer=lambda response, _: Answer(run_detail_view(response)),
        view=RunDetailView,
        has_etag=True,
        perform=_whole_run,
    ),
    Route(
        method="GET",
        path="/runs/{run_id}/result",
        rpc=_SERVICE + "AwaitRun",
        summary="The result of a run, waited for up to `wait` seconds: 200 when it has ended, else 202",
        request=_result_request,
        answer=_result_answer,
        view=ResultView,
        statuses=(200, 202),
        query=(seconds_param("wait", _MAX_WAIT_S),),
        timeout_s=lambda found: found.query.get("wait", 0) + _WAIT_MARGIN_S,
    ),
    Route(
        method="GET",
        path="/runs/{run_id}/stream",
        rpc=_SERVICE + "WatchRun",
        summary="Follow a run by Server-Sent Events until it ends; 204 behind the last of them",
        request=lambda found: run_service_pb2.WatchRunRequest(run_id=found.path["run_id"]),
        answer=lambda response, _: Answer(run_change_view(response)),
        view=RunChangeView,
        statuses=(200, 204),
        events=Events(resume=_resumed, event=_change_event),
    ),
    Route(
        method="POST",
        path="/runs/{run_id}/cancel",
        rpc=_SERVICE + "CancelRun",
        summary="Cancel an active run and, unless told to keep them, its active children",
        request=_cancel_request,
        answer=_run_answer,
        view=RunView,
        body=_CANCEL,
    ),
    Route(
        method="POST",
        path="/runs/{run_id}/retry",
        rpc=_SERVICE + "RetryRun",
        summary="Let a failed, cancelled or timed-out run go on from where it stopped",
        request=lambda found: run_service_pb2.RetryRunRequest(run_id=found.path["run_id"]),
        answer=_run_answer,
        view=RunView,
        body=Shape(()),
    ),
    Route(
        method="POST",
        path="/runs/{run_id}/replay",
        rpc=_SERVICE + "ReplayRun",
        summary="Start a new run with the same event, from the start or from a step",
        request=_replay_request,
        answer=_replay_answer,
        view=RunView,
        statuses=(201,),
        body=_REPLAY,
    ),
)
