"""`runr login` and what it keeps: for whom, in which file, and what a command makes of it."""

from __future__ import annotations

import asyncio
import io
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.cli.access import login
from services.cli.contexts import Context, Contexts
from services.cli.failure import Failure
from services.cli.main import main, parser
from services.cli.reach import Reached, place, reach, with_context

PROD = Context("https://runr.example.com", "rt_prod", "acme", "orders")
STACK = {"api_url": "http://127.0.0.1:8080", "token": "rt_dev"}
HOME = ".runr"
STAGE, OTHER = "https://stage.example.com", "https://other.example.com"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of somebody whose current folder may have a stack, in the usual home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUNR_HOME", raising=False)
    (tmp_path / HOME).mkdir()
    return {"RUNR_CONFIG": str(tmp_path / "runr" / "contexts.json")}


@pytest.fixture
def kept(environ: dict[str, str]) -> dict[str, str]:
    """Two contexts, of which `prod` is current, and a stack in the home."""
    contexts = Contexts.of(environ).with_context("stage", Context(STAGE, "rt_stage"))
    contexts.with_context("prod", PROD).save()
    Path(HOME, "stack.json").write_text(json.dumps(STACK))
    return environ


def test_the_file_is_for_its_owner_alone(kept: dict[str, str]) -> None:
    path = Path(kept["RUNR_CONFIG"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert Contexts.of(kept).get("prod") == PROD


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(kept: dict[str, str], mode: int) -> None:
    Path(kept["RUNR_CONFIG"]).chmod(mode)
    with pytest.raises(Failure, match="others may read it: chmod 600") as told:
        Contexts.of(kept)
    assert told.value.code == 2
    assert "rt_prod" not in str(told.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"current": 1}', '{"current": null, "contexts": {"a": {}}}'])
def test_a_file_that_is_none_of_contexts_is_told(kept: dict[str, str], content: str) -> None:
    Path(kept["RUNR_CONFIG"]).write_text(content)
    with pytest.raises(Failure, match="is not a file of contexts"):
        Contexts.of(kept)


@pytest.mark.parametrize(
    ("given", "context", "reached"),
    [
        ({}, None, Reached(PROD.url, "rt_prod", "acme", "orders")),
        ({"RUNR_CONTEXT": "stage"}, None, Reached(STAGE, "rt_stage")),
        ({"RUNR_CONTEXT": "dev"}, None, Reached(STACK["api_url"], "rt_dev")),
        ({"RUNR_TOKEN": "mine"}, None, Reached(PROD.url, "mine", "acme", "orders")),
        ({"RUNR_API_URL": OTHER, "RUNR_TOKEN": "mine"}, None, Reached(OTHER, "mine")),
        ({"RUNR_API_URL": OTHER, "RUNR_TOKEN": "mine", "RUNR_CONTEXT": "stage"}, None, Reached(OTHER, "mine")),
        ({"RUNR_API_URL": OTHER, "RUNR_TOKEN": "mine"}, "stage", Reached(STAGE, "rt_stage")),
        ({"RUNR_CONTEXT": "prod"}, "dev", Reached(STACK["api_url"], "rt_dev")),
        ({"RUNR_HOME": HOME}, None, Reached(STACK["api_url"], "rt_dev")),
        ({"RUNR_HOME": HOME, "RUNR_CONTEXT": "stage"}, None, Reached(STAGE, "rt_stage")),
        ({"RUNR_HOME": HOME}, "stage", Reached(STAGE, "rt_stage")),
    ],
)
def test_the_first_that_says_where_the_api_is_wins(
    kept: dict[str, str], given: Mapping[str, str], context: str | None, reached: Reached
) -> None:
    assert reach(with_context({**kept, **given}, context)) == reached


def test_a_token_that_is_kept_is_not_shown_to_another_api(kept: dict[str, str]) -> None:
    with pytest.raises(Failure, match="RUNR_TOKEN is not set"):
        reach({**kept, "RUNR_API_URL": OTHER})


def test_a_context_that_is_not_there_is_told_with_what_is_like_it(kept: dict[str, str]) -> None:
    with pytest.raises(Failure, match=r"no context stge \(did you mean stage\?\)"):
        reach(with_context(kept, "stge"))


@pytest.mark.parametrize(
    ("words", "tenant", "project"),
    [
        ("runs list", "acme", "orders"),
        ("runs list --project p --tenant t", "t", "p"),
        ("runs list --context stage", None, "default"),
        ("events list", "acme", None),
    ],
)
def test_what_is_not_named_is_what_the_context_has(
    kept: dict[str, str], words: str, tenant: str | None, project: str | None
) -> None:
    given = parser().parse_args(words.split())
    place(with_context(kept, given.context), given)
    assert (given.tenant, given.project) == (tenant, project)


async def test_a_login_is_kept_once_the_api_has_taken_the_token(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def session(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != "Bearer rt_good":
            return web.json_response({"title": "Not authenticated", "detail": "this token is not known"}, status=401)
        caller = {"id": "t", "session": False, "email": "ada@example.com", "tenant": "acme", "role": "developer"}
        return web.json_response({**caller, "abilities": []})

    app = web.Application()
    app.router.add_get("/api/session", session)
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        with pytest.raises(Failure, match="this token is not known"):
            await _run(environ, monkeypatch, f"login {url}/api/ --name here", stdin="rt_bad\n")
        assert not Path(environ["RUNR_CONFIG"]).exists()
        await _run(environ, monkeypatch, f"login {url}/api/ --name here --project orders", stdin="rt_good\n")
    assert capsys.readouterr().out == (f"here is the current context: {url} as ada@example.com, developer of acme\n")
    assert Contexts.of(environ).get("here") == Context(url, "rt_good", None, "orders")


@pytest.mark.parametrize(
    ("words", "token", "said"),
    [
        ("runs list", "", "that of the context prod"),
        ("runs list --context dev", "", "that of the stack in "),
        ("events list", "rt_mine", "that of RUNR_TOKEN"),
    ],
)
async def test_a_token_that_is_refused_is_named(
    kept: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    token: str,
    said: str,
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"title": "Not authenticated", "detail": "the token is not known"}, status=401)

    app = web.Application()
    app.router.add_get("/{any:.*}", refuse)
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        Contexts.of(kept).with_context("prod", Context(url, "rt_prod")).save()
        Path(HOME, "stack.json").write_text(json.dumps({**STACK, "api_url": url}))
        for name, value in {**kept, "RUNR_TOKEN": token, "RUNR_API_URL": url if token else ""}.items():
            monkeypatch.setenv(name, value)
        assert await asyncio.to_thread(main, words.split()) == 1
    assert f"the token is not known: it is {said}" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "two words", "ümlaut", "a\nb"])
async def test_what_is_no_token_is_refused_before_it_is_sent(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    with pytest.raises(Failure, match="a token is needed, one word"):
        await _run(environ, monkeypatch, "login http://127.0.0.1:1", stdin=token)


@pytest.mark.parametrize(("words", "said"), [("x y", "--name x y: letters"), ("dev", "dev is the stack")])
async def test_a_name_that_none_may_have_is_refused(environ: dict[str, str], words: str, said: str) -> None:
    given = parser().parse_args(["login", "http://127.0.0.1:1", "--name", words])
    with pytest.raises(Failure, match=said):
        await login.run(environ, given)


async def test_contexts_are_listed_used_and_forgotten_without_their_tokens(
    kept: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run(kept, monkeypatch, "contexts list --json")
    listed = capsys.readouterr().out
    assert "rt_" not in listed
    assert [(row["name"], row["current"]) for row in json.loads(listed)["data"]] == [("prod", True), ("stage", False)]
    await _run(kept, monkeypatch, "contexts use stage")
    await _run(kept, monkeypatch, "contexts list")
    assert "*  stage" in capsys.readouterr().out
    await _run(kept, monkeypatch, "logout")
    with pytest.raises(Failure, match="no context is current"):
        await _run(kept, monkeypatch, "logout")
    assert reach(kept).url == STACK["api_url"]
    await _run(kept, monkeypatch, "logout prod --json")
    assert Contexts.of(kept).named == {}


async def _run(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, words: str, *, stdin: str = "") -> None:
    class Stdin(io.TextIOWrapper):
        def isatty(self) -> bool:
            return False

    given: Any = parser().parse_args(words.split())
    with Stdin(io.BytesIO(stdin.encode())) as text:
        monkeypatch.setattr("sys.stdin", text)
        assert await login.run(environ, given) == 0
