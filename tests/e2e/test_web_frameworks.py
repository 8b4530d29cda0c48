"""What the page about web frameworks mounts, in the frameworks themselves, called by the real engine."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import uvicorn
from aiohttp import web
from runr_workflows import Workflows

from tests.support.page_programs import execute
from tests.support.pages import page
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.waiting import until
from tests.support.workflow_app import signing_key, sync

PAGE = page("docs/how-to/web-frameworks.md")
PATH = "/api/workflows"

Names = dict[str, Any]
Server = Callable[[Any], AbstractAsyncContextManager[int]]


class Quiet(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: Any) -> None:
        """Not said."""


@asynccontextmanager
async def wsgi(app: Any) -> AsyncIterator[int]:
    """The port of a server for WSGI."""
    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()


@asynccontextmanager
async def asgi(app: Any) -> AsyncIterator[int]:
    """The port of a server for ASGI."""
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server._serve())
    await until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def aiohttp(app: web.Application) -> AsyncIterator[int]:
    """The port of a server of aiohttp."""
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def django_view(names: Names) -> Any:
    """A Django project that routes the path to the view of the page."""
    urls = ModuleType("urls_of_the_test")
    urls.urlpatterns = [importlib.import_module("django.urls").path("api/workflows", names["workflows"])]  # type: ignore[attr-defined]
    importlib.import_module("django.conf").settings.ROOT_URLCONF = urls
    return importlib.import_module("django.core.wsgi").get_wsgi_application()


DOORS: dict[str, tuple[str, Server, Callable[[Names], Any], str]] = {
    "flask-beside": ("# Flask: app.py", wsgi, lambda names: names["app"], PATH),
    "flask-view": ("# Flask: a view", wsgi, lambda names: names["app"], PATH),
    "django-wsgi": ("# Django: the project's wsgi.py", wsgi, lambda names: names["application"], PATH),
    "django-view": ("# Django: a view", wsgi, django_view, PATH),
    "fastapi": ("# FastAPI", asgi, lambda names: names["app"], f"{PATH}/"),
    "django-asgi": ("# Django: the project's asgi.py", asgi, lambda names: names["application"], PATH),
    "aiohttp": ("# aiohttp", aiohttp, lambda names: names["app"], PATH),
}
"""The block that makes an application, its server, the application of the block's names, and the path to call."""


@only_over("http", because="the page is about servers that the engine calls")
@pytest.mark.parametrize("door", DOORS)
async def test_a_framework(rest: Rest, door: str) -> None:
    block, serve, application, path = DOORS[door]
    wf = Workflows(signing_key=await signing_key(rest), signing_key_fallback="")
    try:
        async with serve(application(execute(PAGE, lambda: wf, until=block))) as port:
            url = {"endpoint_url": f"http://127.0.0.1:{port}{path}"}
            await rest.ok("PATCH", f"/projects/{rest.project}/workflows/app", url)
            assert await sync(rest) == ["hello"]
            assert await rest.completed(await rest.start("hello", {"name": "Ada"})) == "Hello, Ada!"
    finally:
        wf.close()


def test_every_block_is_a_door_or_part_of_one() -> None:
    named = [block for block in PAGE.blocks("python") if block.startswith("# ")]
    assert sorted(block for block, *_ in DOORS.values()) == sorted(
        next(known for known, *_ in DOORS.values() if block.startswith(known)) for block in named
    )
