"""An HTTP/1.1 client that costs little: the load generator must not be what is measured.

It knows what the benchmarked servers answer with (`Content-Length` or chunks) and one request at a time a connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

_LIMIT_S = 120.0


class CallFailed(Exception):
    """An answer that is no success, or none; the text says which request."""


class _Exchange(asyncio.Protocol):
    """A connection: one request, one answer, again."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are no subclasses.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        found = parse(self._buffer)
        if found is not None and self._answer is not None:
            self._buffer = b""
            if not self._answer.done():
                self._answer.set_result(found)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(CallFailed("the connection was closed"))

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """The answer that comes."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class LeanClient:
    """Calls one server over as many kept connections as there are calls at once. An async context manager."""

    def __init__(self, base: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(base)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        own = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._fixed = f" HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{own}".encode()
        self._idle: list[_Exchange] = []

    def as_caller(self, token: str) -> LeanClient:
        """The same client, with its connections, for another token. It is closed with this one."""
        other = LeanClient(f"http://{self._host}:{self._port}", {"Authorization": f"Bearer {token}"})
        other._idle = self._idle
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for exchange in self._idle:
            exchange.close()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a success, None where there is none. Raises CallFailed."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path}".encode() + self._fixed
        length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
        try:
            async with asyncio.timeout(_LIMIT_S):
                exchange = await self._connection()
                status, answer = await exchange.send(head + length + content)
        except (TimeoutError, OSError, CallFailed) as error:
            raise CallFailed(f"{method} {path}: {error or type(error).__name__}") from error
        self._idle.append(exchange)
        if status >= 300:
            raise CallFailed(f"{method} {path}: {status} {answer[:500].decode(errors='replace')}")
        return json.loads(answer) if answer else None

    async def _connection(self) -> _Exchange:
        while self._idle:
            exchange = self._idle.pop()
            if exchange.is_open:
                return exchange
        _, opened = await asyncio.get_running_loop().create_connection(_Exchange, self._host, self._port)
        return opened


def parse(data: bytes) -> tuple[int, bytes] | None:
    """Status and body of a whole answer, None while bytes are missing."""
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        return None
    status = int(head[9:12])
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        whole = _unchunk(body)
        return None if whole is None else (status, whole)
    at = lowered.find(b"content-length:")
    length = int(lowered[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return (status, body) if len(body) >= length else None


def _unchunk(data: bytes) -> bytes | None:
    parts: list[bytes] = []
    while True:
        line, separator, rest = data.partition(b"\r\n")
        if not separator:
            return None
        size = int(line.split(b";")[0], 16)
        if len(rest) < size + 2:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(rest[:size])
        data = rest[size + 2 :]
