"""Where a process says over HTTP whether it lives, may get work, and what it has counted, at an address of its own: a
busy gRPC or HTTP server does not hide it.

Three routes need no web framework, whose import is a fifth of a service's start: a request of at most 8 KiB without a
body, one for each connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from services.core.runtime.accepting import accept_no_more
from services.core.runtime.health import Health
from services.core.runtime.listen_fault import listen_fault
from services.core.runtime.parse import Address
from services.core.runtime.version import engine_version

log = logging.getLogger(__name__)

Tell = Callable[[], Awaitable[bytes]]
"""What `/metrics` answers: `Exposition.text`, or that of several processes."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_JSON_TYPE = "application/json; charset=utf-8"
_ROUTES = ("/healthz", "/readyz", "/metrics")
_MOST_BYTES = 8192
_REQUEST_S = 5.0
_MOST_CONNECTIONS = 100


class HealthServer:
    """Serves `/healthz`, whether the process turns, `/readyz`, whether it may get work (503: no, and why), and
    `/metrics` for Prometheus.
    """

    name = "health"

    def __init__(
        self,
        health: Health,
        address: Address,
        service: str,
        *,
        listener: socket.socket | None = None,
        metrics: Tell | None = None,
    ) -> None:
        """`listener` is served instead of `address`. Without `metrics` there are none."""
        self._listener = listener
        self._metrics = metrics
        self._health = health
        self._address = address
        self._service = service
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> Address:
        """Where it listens; after `start` with the port that the system chose for port 0."""
        return self._address

    async def start(self) -> None:
        """Listens. Raises OSError, which names the address, when it is taken."""
        if self._listener is not None:
            self._server = await asyncio.start_server(self._accept, sock=self._listener, limit=_MOST_BYTES)
        else:
            host, port = self._address.host, self._address.port
            try:
                self._server = await asyncio.start_server(self._accept, host, port, limit=_MOST_BYTES)
            except OSError as error:
                raise listen_fault(self._address, error, "RUNR_HEALTH_ADDR") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = Address(host=host, port=port)

    async def stop(self) -> None:
        """Closes the server; a second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            await accept_no_more(server)
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or len(self._open) >= _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer), name="health-request")
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        # Not in the task, which never begins when it is cancelled in time.
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
                writer.write_eof()
                # Until the other side has read it: closed with something unread, it would be reset.
                await reader.read(_MOST_BYTES)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a request for health was not answered", extra={"fault": type(error).__name__})

    async def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, {"error": "not a request of HTTP/1.1"})
        method, target, _ = words
        path = target.split("?", 1)[0]
        if path not in _ROUTES or (path == "/metrics" and self._metrics is None):
            return _response(HTTPStatus.NOT_FOUND, {"error": "only /healthz, /readyz and /metrics are here"})
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"}, "Allow: GET, HEAD\r\n")
        if path == "/healthz":
            return _response(HTTPStatus.OK, {"status": "ok", "service": self._service}, has_body=method == "GET")
        if path == "/metrics" and self._metrics is not None:
            return _answer(HTTPStatus.OK, await self._metrics(), METRICS_TYPE, has_body=method == "GET")
        ready, report = await self._health.readiness()
        body = {
            "status": "ready" if ready else "not_ready",
            "service": self._service,
            "version": engine_version(),
            "checks": dict(report),
        }
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return _response(status, body, has_body=method == "GET")


def _response(status: HTTPStatus, body: dict[str, Any], headers: str = "", *, has_body: bool = True) -> bytes:
    return _answer(status, json.dumps(body).encode(), _JSON_TYPE, headers, has_body=has_body)


def _answer(status: HTTPStatus, text: bytes, media_type: str, headers: str = "", *, has_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {media_type}\r\n"
        f"Content-Length: {len(text)}\r\nCache-Control: no-store\r\n{headers}Connection: close\r\n\r\n"
    )
    return head.encode() + (text if has_body else b"")
