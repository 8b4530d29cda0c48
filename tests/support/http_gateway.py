"""A real gateway on port 0 before real gRPC servers whose methods a test writes itself."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from services.core.domain.event import EventLimits
from services.core.rpc.server import RpcServer
from services.core.runtime.health import Health
from services.core.runtime.parse import Address
from services.core.runtime.telemetry import Telemetry
from services.gateway.backends import Backends
from services.gateway.endpoint import Bounds
from services.gateway.http_app import make_http_app
from services.gateway.http_server import HttpServer
from services.gateway.mcp.origin import NO_ORIGINS, Origins
from services.gateway.rate_limit import RateLimit
from tests.support.grpc_backend import ADMIN, LOOPBACK, no_telemetry, rpc_server, serving

BOUNDS = Bounds(body_bytes=4 << 20, events_body_bytes=26 << 20, events=EventLimits())


@dataclass(frozen=True)
class Reply:
    """What the gateway answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self, status: int) -> dict[str, Any]:
        """The body, checked to be a whole problem of this status."""
        assert self.status == status, self.body
        assert self.headers["Content-Type"].startswith("application/problem+json")
        found: dict[str, Any] = self.json
        assert set(found) == {"type", "title", "status", "detail", "errors", "trace_id"}
        assert found["status"] == status
        assert found["trace_id"] == self.headers["x-trace-id"]
        assert len(found["trace_id"]) == 32
        return found

    def faults(self, status: int = 422) -> dict[str, str]:
        """Path → message of a problem's errors."""
        return {fault["path"]: fault["message"] for fault in self.problem(status)["errors"]}


class Client:
    """Calls the gateway with a token."""

    def __init__(self, session: aiohttp.ClientSession, http: HttpServer, server: RpcServer) -> None:
        self._session = session
        self.http = http
        self.server = server

    @property
    def address(self) -> Address:
        """Where the gateway listens."""
        return self.http.address

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        raw: Any = None,
        token: str | None = ADMIN,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        data = raw if body is None else json.dumps(body).encode()
        if isinstance(data, bytes):
            # aiohttp warns of large bytes, but sends a file of them.
            data = io.BytesIO(data)
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://{self.address}{path}"
        async with self._session.request(method, url, data=data, headers={**sent, **(headers or {})}) as answer:
            return Reply(answer.status, answer.headers, await answer.read())


@asynccontextmanager
async def gateway(
    methods: Mapping[str, Any],
    *,
    bounds: Bounds = BOUNDS,
    origins: Origins = NO_ORIGINS,
    telemetry: Telemetry | None = None,
    write_timeout_s: float = 60.0,
    server: RpcServer | None = None,
    limit: RateLimit | None = None,
) -> AsyncIterator[Client]:
    """A client of a running gateway. `methods` as in `rpc_server`, all behind one server."""
    backend = server or rpc_server(methods)
    health = Health()
    health.set_started()
    async with serving(backend):
        peers = dict.fromkeys(("ingest", "scheduler", "executor"), backend.address)
        backends = Backends(peers, health)
        app = make_http_app(
            backends=backends,
            health=health,
            telemetry=telemetry or no_telemetry(),
            bounds=bounds,
            origins=origins,
            write_timeout_s=write_timeout_s,
            limit=limit,
        )
        http = HttpServer(app, LOOPBACK, grace_s=1.0)
        async with serving(backends), serving(http), aiohttp.ClientSession() as session:
            yield Client(session, http, backend)
