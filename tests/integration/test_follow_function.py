"""`runr dev --function`: a refusal or a gateway that is away for a moment is told, and tried again."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli import function
from services.cli.function import APP, SYNC, follow_function

URL = "http://127.0.0.1:8001"


async def test_the_registration_is_repeated_until_it_is_taken_and_then_not_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(function, "_POLL_S", 0.01)
    refusals = [(503, "Unavailable"), (422, "Not valid")]
    registered: list[object] = []
    synced: asyncio.Queue[None] = asyncio.Queue()
    synced_once = asyncio.Event()

    async def patch(request: web.Request) -> web.Response:
        if refusals:
            status, title = refusals.pop(0)
            return web.json_response({"title": title}, status=status)
        registered.append(await request.json())
        return web.json_response({"archived": []})

    async def sync(_request: web.Request) -> web.Response:
        gone = [] if synced_once.is_set() else [{"name": "old", "active_runs": 2, "at_least": False}]
        synced_once.set()
        synced.put_nowait(None)
        return web.json_response(
            {"sync": {"status": "synced", "message": ""}, "workflows": [{"name": "order"}], "archived": gone}
        )

    app = web.Application()
    app.router.add_patch(APP, patch)
    app.router.add_post(SYNC, sync)
    async with TestServer(app) as server:
        app_url = server.make_url(APP)
        following = asyncio.create_task(follow_function(str(server.make_url("/")), "token", URL))
        async with asyncio.timeout(10):
            for _ in range(3):
                await synced.get()
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
    assert registered == [{"endpoint_url": URL}]
    told = capsys.readouterr().out.splitlines()
    assert told[3].startswith("warning   2 runs of old are active. They go on only where it is served still")
    assert [*told[:3], *told[4:]] == [
        f"function {URL}: PATCH {app_url}: 503 Unavailable",
        f"function {URL}: PATCH {app_url}: 422 Not valid",
        "archived  old: it starts no new runs",
        f"function {URL}: order",
    ]
