"""`POST /mcp`: what is checked of every request before MCP's own server sees it, and how that one is found."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Collection

from aiohttp import web
from runr.workflows.v1 import access_service_pb2

from services.core.domain.errors import DomainError, PermissionDenied, Unauthenticated, Unsupported
from services.core.rpc.authorize import bearer_token
from services.core.runtime.off_loop import OffLoop
from services.gateway.backends import Backends, Credentials
from services.gateway.body import read_body
from services.gateway.credentials import only_header, token_credentials
from services.gateway.endpoint import Bounds, Handler
from services.gateway.mcp.asgi import Application, asgi_answer
from services.gateway.mcp.call import Asked
from services.gateway.mcp.message import NoMessage, parted
from services.gateway.mcp.origin import Origins
from services.gateway.mcp.tools import TOOLS
from services.gateway.observe import REQUEST_TRACE

_WHOAMI = "/runr.workflows.v1.AccessService/GetCaller"
_SERVER = "services.gateway.mcp.server"
_OURS = "services."


def mcp_endpoint(backends: Backends, bounds: Bounds, origins: Origins, *, server: str = _SERVER) -> Handler:
    """The aiohttp handler. `server` is the module with `McpServer`, imported when it is first needed."""
    off_loop = OffLoop("mcp")
    loaded: list[Application] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        origins.check(request.headers.get("Origin"))
        bearer_token(only_header(request, "Authorization"))  # a browser's cookie is nothing for agents
        if "Idempotency-Key" in request.headers:
            raise Unsupported("an Idempotency-Key is an argument of the tools that take one, not a header")
        credentials = token_credentials(request)
        abilities = await _abilities(backends, credentials)
        body = await read_body(request, max_bytes=bounds.body_bytes, timeout_s=bounds.body_timeout_s)
        try:
            message = await off_loop.run(len(body), parted, body)
        except NoMessage as fault:
            return web.Response(status=400, body=fault.answer, content_type="application/json")
        if not loaded:
            loaded.append(await asyncio.to_thread(_load, server, bounds.body_bytes))
        asked = Asked(
            backends=backends,
            bounds=bounds,
            off_loop=off_loop,
            credentials=credentials,
            trace_id=request[REQUEST_TRACE].trace_id,
            abilities=abilities,
            message=message,
        )
        return await asgi_answer(loaded[0], request, message.envelope, asked)

    return handle


async def _abilities(backends: Backends, credentials: Credentials) -> Collection[str] | None:
    """What the token may do: no message of a stranger is read.

    None while the service that knows it is away: each tool's own service asks again.
    """
    try:
        caller = await backends.call(
            _WHOAMI, access_service_pb2.GetCallerRequest(), credentials=credentials, timeout_s=10.0
        )
    except (Unauthenticated, PermissionDenied):
        raise
    except DomainError:
        return None
    return frozenset(caller.abilities)


def _load(server: str, body_bytes: int) -> Application:
    try:
        module = importlib.import_module(server)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(_OURS):
            raise
        raise Unsupported(
            f"this gateway was installed without MCP ({error.name} is missing):"
            " install the engine with its extra mcp, in its checkout pip install ./proto '.[mcp]'"
        ) from error
    application: Application = module.McpServer(TOOLS, max_body_bytes=body_bytes)
    return application
