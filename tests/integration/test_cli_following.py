"""How the command line follows a run: over streams that end, gateways that go away, and to the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli.api import ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.main import parser
from services.cli.runs.following import Change, changes
from services.cli.runs.logs import logs
from services.cli.runs.waiting import Waiting

AT = "2026-10-31T08:00:0{}.000Z"
RUN: dict[str, Any] = {
    **{"id": "r", "workflow": "order", "source": "event", "status": "running", "error": None, "attempts": []},
    **{"created_at": AT.format(0), "started_at": AT.format(1), "ended_at": None},
}
CHARGE: dict[str, Any] = {
    **{"id": "charge", "kind": "run", "status": "running", "error": None, "attempts": [], "child_run_id": None},
    **{"started_at": AT.format(2), "ended_at": None},
}
REFUSED = {"attempt": 1, "error": {"name": "E", "message": "the bank\x1b[2J"}, "started_at": None}
CHARGED = {
    **CHARGE,
    "status": "completed",
    "attempts": [{**REFUSED, "ended_at": AT.format(3)}],
    "ended_at": AT.format(4),
}
COMPLETED = {**RUN, "status": "completed", "ended_at": AT.format(5)}
FAILED = {**COMPLETED, "status": "failed", "error": {"name": "Boom", "message": "it broke"}}


def event(name: str, cursor: str, run: dict[str, Any], *steps: dict[str, Any]) -> bytes:
    data = json.dumps({"run": run, "steps": steps, "whole": False})
    return f"event: {name}\nid: {cursor}\ndata: {data}\n\n".encode()


BEGIN, STEP = event("change", "c-1", RUN, CHARGE), event("change", "c-2", RUN, CHARGED)
END, BAD_END = event("end", "c-3", COMPLETED), event("end", "c-3", FAILED)


class Gateway:
    """Answers each request for the stream with the next of `parts`: bytes and how they end, or a status."""

    def __init__(self, *parts: bytes | int, breaks: bool = False) -> None:
        self.asked: list[str] = []
        self._parts = list(parts)
        self._breaks = breaks

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers.get("Last-Event-ID", ""))
        part = self._parts.pop(0)
        if isinstance(part, int):
            return web.json_response({"title": "No"}, status=part)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(part)
        if not self._parts:
            await asyncio.Event().wait()
        if self._breaks:
            assert request.transport is not None
            await response.write(b"event: cha")
            request.transport.abort()
        return response

    def serving(self) -> TestServer:
        app = web.Application()
        app.router.add_get("/api/runs/r/stream", self.handle)
        return TestServer(app)


async def followed(gateway: Gateway) -> list[Change]:
    async with gateway.serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        return [change async for change in changes(api, "r")]


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
async def test_a_stream_that_is_over_early_goes_on_from_its_last_event(breaks: bool) -> None:
    gateway = Gateway(BEGIN, STEP + END, breaks=breaks)
    told = await followed(gateway)
    assert [(change.run["status"], [step["status"] for step in change.steps]) for change in told] == [
        ("running", ["running"]),
        ("running", ["completed"]),
        ("completed", []),
    ]
    assert [change.is_last for change in told] == [False, False, True]
    assert gateway.asked == ["", "c-1"]


async def test_a_gateway_that_is_away_for_a_moment_is_waited_for() -> None:
    gateway = Gateway(503, BEGIN, 502, END)
    assert len(await followed(gateway)) == 2
    assert gateway.asked == ["", "", "c-1", "c-1"]


@pytest.mark.parametrize("status", [401, 403, 404, 501])
async def test_what_no_waiting_mends_is_told_at_once(status: int) -> None:
    gateway = Gateway(status)
    with pytest.raises(ApiFailure) as told:
        await followed(gateway)
    assert (told.value.status, len(gateway.asked)) == (status, 1)


@pytest.mark.parametrize(
    ("end", "code", "said"), [(END, 0, "completed"), (BAD_END, 1, "failed: Boom: it broke")], ids=["well", "badly"]
)
async def test_the_log_of_a_run_tells_each_thing_once(
    end: bytes, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = parser().parse_args(["runs", "logs", "r", "-f"])
    gateway = Gateway(BEGIN, BEGIN + STEP, STEP + end)
    async with gateway.serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        assert await logs(api, given) == code
    assert capsys.readouterr().out.splitlines() == [
        f"{AT.format(0)}  created order, event",
        f"{AT.format(1)}  started",
        f"{AT.format(2)}  charge  run started",
        f"{AT.format(3)}  charge  attempt 1 failed: E: the bank [2J",
        f"{AT.format(4)}  charge  completed",
        f"{AT.format(5)}  {said}",
    ]


async def test_what_happened_in_one_millisecond_is_told_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    at = AT.format(0)
    refused = {**CHARGED, "status": "failed", "error": {"name": "E", "message": "no"}, "started_at": at, "ended_at": at}
    refund = {**CHARGE, "id": "a-refund", "status": "completed", "started_at": at, "ended_at": at}
    lost = {"attempt": 1, "error": {"name": "L", "message": "gone"}, "started_at": at, "ended_at": at}
    run = {**COMPLETED, "started_at": at, "ended_at": at, "attempts": [lost]}
    refused["attempts"] = [{**REFUSED, "ended_at": at}]
    given = parser().parse_args(["runs", "logs", "r", "-f"])
    gateway = Gateway(event("end", "c", run, refused, refund))
    async with gateway.serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        await logs(api, given)
    assert [line.removeprefix(f"{at}  ") for line in capsys.readouterr().out.splitlines()] == [
        "created order, event",
        "started",
        "function attempt 1 failed: L: gone",
        "charge  run started",
        "charge  attempt 1 failed: E: the bank [2J",
        "charge  failed: E: no",
        "a-refund  run started",
        "a-refund  completed",
        "completed",
    ]


LOST = {"attempt": 1, "error": {"name": "WorkerLost", "message": "gone"}, "started_at": None, "ended_at": AT.format(2)}
AGAIN = {**LOST, "attempt": 2, "ended_at": AT.format(3)}
FAILING = (
    event("change", "c-1", {**RUN, "attempts": [LOST]}),
    event("change", "c-2", {**RUN, "attempts": [AGAIN]}),
    event("end", "c-3", {**COMPLETED, "attempts": [LOST, AGAIN]}),
)


async def test_failed_attempts_of_the_function_are_told_as_they_come_and_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = parser().parse_args(["runs", "logs", "r", "-f"])
    async with Gateway(b"".join(FAILING)).serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        await logs(api, given)
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"{AT.format(2)}  function attempt 1 failed: WorkerLost: gone",
        f"{AT.format(3)}  function attempt 2 failed: WorkerLost: gone",
        f"{AT.format(5)}  completed",
    ]


async def test_who_waits_is_told_of_failed_attempts_of_the_function_once(capsys: pytest.CaptureFixture[str]) -> None:
    async with Gateway(b"".join(FAILING)).serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        with pytest.raises(ApiFailure):
            await Waiting(api, timeout_s=None, live=True).end("r")
    assert capsys.readouterr().err.splitlines() == [
        "r  function attempt 1 failed: WorkerLost: gone",
        "r  running",
        "r  function attempt 2 failed: WorkerLost: gone",
        "r  completed",
    ]


async def test_a_log_for_programs_has_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    given = parser().parse_args(["runs", "logs", "r", "-f", "--json"])
    async with Gateway(BEGIN + END).serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        assert await logs(api, given) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["run"], line["step"], line["said"]) for line in lines] == [
        ("r", None, "created order, event"),
        ("r", None, "started"),
        ("r", "charge", "run started"),
        ("r", None, "completed"),
    ]


async def test_who_waits_sees_what_happens_and_stops_at_the_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    async with Gateway(BEGIN).serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        waiting = asyncio.create_task(Waiting(api, timeout_s=5.0, live=True).end("r"))
        with pytest.raises(Failure, match="has not ended after 5 s and goes on; its status is running"):
            await asyncio.wait_for(waiting, 60)
    assert capsys.readouterr().err == "r  running\nr  step charge running\n"


async def test_who_waits_is_told_of_the_end_last(capsys: pytest.CaptureFixture[str]) -> None:
    gateway = Gateway(BEGIN, event("end", "c-2", COMPLETED, CHARGED))
    async with gateway.serving() as server, ApiClient(str(server.make_url("/")), "t") as api:
        with pytest.raises(ApiFailure):
            await Waiting(api, timeout_s=None, live=True).end("r")
    assert capsys.readouterr().err.splitlines()[-2:] == ["r  step charge completed", "r  completed"]
