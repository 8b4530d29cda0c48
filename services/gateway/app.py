"""The composition root of the gateway: HTTP in, gRPC out, no state."""

from __future__ import annotations

from dataclasses import dataclass

from services.core.domain.event import EventLimits
from services.core.rpc.credentials import channel_credentials
from services.core.runtime import parse
from services.core.runtime.config import setting
from services.core.runtime.lifecycle import Component
from services.core.runtime.service import Runtime
from services.core.runtime.settings import (
    CookieSettings,
    ListenSettings,
    McpSettings,
    PeerSettings,
    PublicSettings,
    RpcSecuritySettings,
    WorkflowLimits,
)
from services.gateway.backends import Backends
from services.gateway.endpoint import Bounds
from services.gateway.http_app import make_http_app
from services.gateway.http_server import HttpServer, own_url
from services.gateway.mcp.origin import Origins, origin_of
from services.gateway.rate_limit import RateLimit
from services.gateway.session import Cookies


@dataclass(frozen=True)
class RateSettings:
    """How often a token may ask."""

    per_second: int = setting("RUNR_RATE_LIMIT", parse.integer(0, 1_000_000), 0)
    burst: int = setting("RUNR_RATE_BURST", parse.integer(1, 10_000_000), 2_000)


@dataclass(frozen=True)
class Settings:
    """What the gateway reads from the environment."""

    listen: ListenSettings
    peers: PeerSettings
    limits: WorkflowLimits
    security: RpcSecuritySettings
    public: PublicSettings
    mcp: McpSettings
    rate: RateSettings
    cookies: CookieSettings


def build(settings: Settings, runtime: Runtime) -> list[Component]:
    """The components of the gateway, lowest dependency first; opens nothing."""
    peers, limits, rate = settings.peers, settings.limits, settings.rate
    backends = Backends(
        {"ingest": peers.ingest, "scheduler": peers.scheduler, "executor": peers.executor},
        runtime.health,
        credentials=channel_credentials(settings.security),
        clock=runtime.clock,
        source=runtime.random,
    )
    app = make_http_app(
        backends=backends,
        health=runtime.health,
        telemetry=runtime.telemetry,
        metrics=runtime.metrics,
        limit=RateLimit(rate.per_second, rate.burst, runtime.clock) if rate.per_second else None,
        cookies=Cookies(secure=settings.cookies.secure, site=origin_of(settings.public.api_url)),
        origins=Origins.of((settings.public.api_url, *settings.mcp.origins), settings.listen.http),
        bounds=Bounds(
            body_bytes=limits.body_bytes,
            events_body_bytes=limits.events_body_bytes,
            events=EventLimits(events=limits.events_per_request, event_bytes=limits.event_bytes),
            own_url=own_url(settings.listen.http),
        ),
    )
    return [backends, HttpServer(app, settings.listen.http, is_draining=lambda: runtime.health.is_draining)]
