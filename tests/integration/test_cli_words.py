"""What `runr workflows` says of an address that is wrong, a file that is none, and a project of workers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli import events, workflows
from services.cli.api import ApiClient, ApiFailure
from services.cli.dev import Dev
from services.cli.failure import Failure
from services.cli.main import parser
from services.cli.reach import reach_api
from services.embedded.home import Home

SYNC = "/api/projects/default/workflows/sync"


def environ(url: str, folder: Path) -> dict[str, str]:
    return {"RUNR_API_URL": url, "RUNR_TOKEN": "token", "RUNR_HOME": str(folder)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_an_api_that_is_away_is_told_with_its_url() -> None:
    base = f"http://127.0.0.1:{free_port()}"
    async with ApiClient(base, "token") as api:
        with pytest.raises(ApiFailure) as told:
            await api.call("POST", SYNC, {})
    assert str(told.value) == f"POST {base}{SYNC}: connection refused"


async def test_what_is_not_our_api_is_told() -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    app = web.Application()
    app.router.add_post(SYNC, page)
    async with TestServer(app) as server, ApiClient(str(server.make_url("/")), "token") as api:
        with pytest.raises(ApiFailure, match="what answers there is not the API of RunR"):
            await api.call("POST", SYNC, {})


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (405, "", "405 what answers there is not the API of RunR"),
        (404, '{"error": "no"}', "404 what answers there is not the API of RunR"),
        (501, "<html>", "501 what answers there is not the API of RunR"),
        (502, "<html>", "502 a proxy answers, and the API behind it is away"),
        (503, '{"title": "Unavailable", "detail": "try again"}', "503 Unavailable; try again"),
    ],
)
async def test_a_refusal_that_is_not_of_our_api_is_told(status: int, text: str, said: str) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_post(SYNC, refuse)
    async with TestServer(app) as server, ApiClient(str(server.make_url("/")), "token") as api:
        with pytest.raises(ApiFailure) as told:
            await api.call("POST", SYNC, {})
    assert str(told.value).endswith(f": {said}")


async def test_an_event_is_sent_again_under_one_key_while_the_gateway_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: list[str] = []
    answers = [0, 503, 409, 201]

    async def accept(request: web.Request) -> web.Response:
        keys.append(request.headers["Idempotency-Key"])
        assert await request.json() == {"name": "paid"}
        status = answers.pop(0)
        if status == 0:
            assert request.transport is not None
            request.transport.abort()
        told = {"id": "e", "name": "paid", "duplicate": False, "runs": ["r"], "resumed": 0, "cancelled": 0}
        return web.json_response({"title": "No", "events": [told]}, status=status or 500)

    app = web.Application()
    app.router.add_post("/api/events", accept)
    given = parser().parse_args(["events", "send", "paid"])
    async with TestServer(app) as server:
        assert await events.run(environ(str(server.make_url("/")), tmp_path), given) == 0
    assert (len(keys), len(set(keys)), answers) == (4, 1, [])
    out, err = capsys.readouterr()
    assert out == "sent      e  paid\nstarted   r\n"
    assert [line.endswith("; it is asked again for 10 s") for line in err.splitlines()] == [True]


async def test_an_event_that_is_refused_is_not_sent_again(tmp_path: Path) -> None:
    asked: list[int] = []

    async def refuse(_: web.Request) -> web.Response:
        asked.append(409)
        return web.json_response({"title": "No"}, status=409)

    app = web.Application()
    app.router.add_post("/api/events", refuse)
    given = parser().parse_args(["events", "send", "paid"])
    async with TestServer(app) as server:
        with pytest.raises(ApiFailure, match="409 No"):
            await events.run(environ(str(server.make_url("/")), tmp_path), given)
    assert asked == [409]


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "localhost:8080/api", "ftp://there", "http://", "http://a:b"])
def test_a_url_without_scheme_or_host_is_refused_before_it_is_called(url: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"RUNR_API_URL is .*: it must begin with http:// or https://") as told:
        reach_api(environ(url, tmp_path))
    assert told.value.code == 2


@pytest.mark.parametrize("end", ["", "/", "/api", "/api/"])
async def test_the_url_may_be_that_of_the_api_and_workers_have_nothing_to_sync(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def sync(_: web.Request) -> web.Response:
        listed = [{"name": "quote", "source": "worker", "is_active": True}]
        return web.json_response(
            {"sync": {"status": "synced", "message": "", "warnings": []}, "workflows": listed, "archived": []}
        )

    app = web.Application()
    app.router.add_post(SYNC, sync)
    async with TestServer(app) as server:
        url = str(server.make_url("/")).rstrip("/") + end
        assert await workflows.sync(environ(url, tmp_path), project="default", file=None, as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[0] == "workers   default is served by workers: nothing to sync"


@pytest.mark.parametrize("text", ["{", "", "\xff", "[" * 100_000])
async def test_a_file_that_is_not_json_is_named_once_and_so_is_the_reason(text: str, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(Failure) as told:
        await workflows.sync(environ("http://127.0.0.1:1", tmp_path), project="default", file=str(file), as_json=False)
    reason = str(told.value).removeprefix(f"--file {file}: ")
    assert reason.startswith(("not JSON: ", "nested too deeply"))
    assert ("list.json" in reason, told.value.code) == (False, 2)


async def test_a_port_that_is_taken_is_told_before_a_server_is_started(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=f"^port {port} is taken; choose another with --port$"):
            await Dev({}, home, port).run(None)
    with pytest.raises(Failure, match="a number from 1 to 65535"):
        await Dev({}, home, 70_000).run(None)
    assert not home.path.exists()
