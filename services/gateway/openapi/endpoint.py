"""`GET /openapi.json`: the description as it is served, made once it is asked for."""

from __future__ import annotations

import functools

import msgspec
from aiohttp import web

from services.core.runtime.off_loop import OffLoop
from services.gateway.endpoint import Handler
from services.gateway.openapi.description import describe
from services.gateway.representation import compressed, tagged
from services.gateway.routes.table import BASE, ROUTES


def description_endpoint(*, session_cookie: str) -> Handler:
    """The aiohttp handler. `session_cookie` is the name of the cookie that a browser's session is in."""
    off_loop = OffLoop("description")

    @functools.cache
    def document() -> bytes:
        return msgspec.json.encode(describe(ROUTES, base=BASE, session_cookie=session_cookie))

    async def handle(request: web.Request) -> web.StreamResponse:
        response = tagged(request, web.Response(body=document(), content_type="application/json"))
        return await compressed(request, response, off_loop)

    return handle
