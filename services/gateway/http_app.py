"""The aiohttp application: the table of routes behind the observing middleware."""

from __future__ import annotations

import asyncio

from aiohttp import web

from services.core.runtime.health import Health
from services.core.runtime.metrics import Metrics
from services.core.runtime.telemetry import Telemetry
from services.core.runtime.version import engine_version
from services.gateway.backends import Backends
from services.gateway.endpoint import Bounds, Handler, endpoint
from services.gateway.event_stream import DRAINING, stream_endpoint
from services.gateway.mcp.endpoint import mcp_endpoint
from services.gateway.mcp.origin import NO_ORIGINS, Origins
from services.gateway.measure import measuring
from services.gateway.observe import observing
from services.gateway.openapi.endpoint import description_endpoint
from services.gateway.rate_limit import RateLimit, limiting
from services.gateway.routes.table import BASE, RESERVED_WORKFLOWS, ROUTES
from services.gateway.session import COOKIES, Cookies

_WORKFLOW = "{workflow}"


def make_http_app(
    *,
    backends: Backends,
    health: Health,
    telemetry: Telemetry,
    bounds: Bounds,
    origins: Origins = NO_ORIGINS,
    cookies: Cookies | None = None,
    write_timeout_s: float = 60.0,
    metrics: Metrics | None = None,
    limit: RateLimit | None = None,
) -> web.Application:
    """The application with all routes; sizes are bounded by `bounds` alone. Without `metrics` it counts for nobody, and
    without a `limit` every token may ask as often as it likes.
    """
    around = [measuring(metrics or Metrics()), observing(telemetry, write_timeout_s=write_timeout_s)]
    if limit is not None:
        around.append(limiting(limit))
    app = web.Application(middlewares=around, client_max_size=0)
    app[COOKIES] = cookies or Cookies()
    app[DRAINING] = asyncio.Event()
    app.on_shutdown.append(_drain)
    for route in ROUTES:
        if route.events is None:
            handler = endpoint(route, backends, bounds)
        else:
            handler = stream_endpoint(route, backends, bounds, write_timeout_s=write_timeout_s)
        _add(app, route.method, BASE + route.path, handler, head=route.events is None)
    description = description_endpoint(session_cookie=app[COOKIES].session_name)
    tools = mcp_endpoint(backends, bounds, origins)
    for base in ("", BASE):
        _add(app, "POST", f"{base}/mcp", tools)
        _add(app, "GET", f"{base}/openapi.json", description)
        _add(app, "GET", f"{base}/healthz", _healthz)
        _add(app, "GET", f"{base}/readyz", _readyz(health))
    return app


async def _drain(app: web.Application) -> None:
    app[DRAINING].set()


def _add(app: web.Application, method: str, path: str, handler: Handler, *, head: bool = True) -> None:
    # Else GET /workflows/sync would be a workflow that does not exist instead of a method that is not allowed.
    reserved = "|".join(f"{name}(?![^/])" for name in RESERVED_WORKFLOWS)
    pattern = path.replace(_WORKFLOW, f"{{workflow:(?!{reserved})[^{{}}/]+}}")
    if method == "GET":
        app.router.add_get(pattern, handler, allow_head=head)
    else:
        app.router.add_route(method, pattern, handler)


async def _healthz(_: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok", "service": "gateway"})


def _readyz(health: Health) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        ready, report = await health.readiness()
        body = {
            "status": "ready" if ready else "not_ready",
            "service": "gateway",
            "version": engine_version(),
            "checks": dict(report),
        }
        return web.json_response(body, status=200 if ready else 503)

    return handle
