"""How the command line waits for runs and reads lists, where the gateway goes away meanwhile or has many pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli.api import ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.runs.paging import listed
from services.cli.runs.waiting import Waiting

ENDED = '{"id": "r", "status": "completed", "ended": true, "output": {"n": 1.0}, "error": null, "ended_at": null}'
ACTIVE = '{"id": "r", "status": "sleeping", "ended": false, "output": null, "error": null, "ended_at": null}'

Answer = Callable[[web.Request], web.Response]


def gateway(path: str, answer: Answer) -> TestServer:
    async def handle(request: web.Request) -> web.Response:
        return answer(request)

    app = web.Application()
    app.router.add_get(path, handle)
    return TestServer(app)


async def test_a_gateway_that_restarts_is_waited_for() -> None:
    said: list[str] = []

    def answer(request: web.Request) -> web.Response:
        said.append(request.query["wait"])
        if len(said) == 1:
            assert request.transport is not None
            request.transport.abort()
        if len(said) == 2:
            return web.json_response({"title": "Unavailable"}, status=503)
        return web.json_response(text=ACTIVE if len(said) == 3 else ENDED)

    async with gateway("/api/runs/r/result", answer) as server, ApiClient(str(server.make_url("/")), "t") as api:
        ended = await Waiting(api, timeout_s=None, live=False).end("r")
    assert (ended.is_success, ended.output, ended.text) == (True, '{"n": 1.0}', ENDED)
    assert ended.shown() == 'completed r\n{"n": 1.0}\n'
    assert len(said) == 4
    assert all(1 <= int(wait) <= 20 for wait in said)


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_what_no_waiting_mends_is_told_at_once(status: int) -> None:
    asked: list[None] = []

    def answer(_: web.Request) -> web.Response:
        asked.append(None)
        return web.json_response({"title": "No"}, status=status)

    async with gateway("/api/runs/r/result", answer) as server, ApiClient(str(server.make_url("/")), "t") as api:
        with pytest.raises(ApiFailure) as told:
            await Waiting(api, timeout_s=None, live=False).end("r")
    assert (told.value.status, len(asked)) == (status, 1)


async def test_a_gateway_that_stays_away_does_not_outlast_the_timeout() -> None:
    async with ApiClient("http://127.0.0.1:1", "t") as api:
        with pytest.raises(Failure, match=r"run r has not ended after 0\.1 s .*; its status is not known"):
            async with asyncio.timeout(30):
                await Waiting(api, timeout_s=0.1, live=False).end("r")


@pytest.mark.parametrize(
    ("limit", "pages", "more"),
    [(None, [200, 200, 50], False), (50, [50], True), (250, [200, 50], True), (450, [200, 200, 50], False)],
)
async def test_a_list_is_read_page_by_page_up_to_its_limit(limit: int | None, pages: list[int], more: bool) -> None:
    everything = list(range(450))
    read: list[int] = []

    def answer(request: web.Request) -> web.Response:
        start, size = int(request.query.get("cursor", "0")), int(request.query["limit"])
        rows = everything[start : start + size]
        read.append(len(rows))
        end = start + size
        assert request.query.getall("tag") == ["a", "b"]
        return web.json_response({"data": rows, "next_cursor": str(end) if end < len(everything) else None})

    async with gateway("/api/things", answer) as server, ApiClient(str(server.make_url("/")), "t") as api:
        found = await listed(api, "/api/things", [("tag", "a"), ("tag", "b")], limit)
    assert found.rows == everything[:limit]
    assert (read, found.next_cursor is not None) == (pages, more)
