"""A server that a test writes by hand, connection by connection, for what no real server would do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.support.listener import Listener, Serve


@dataclass(frozen=True)
class Asked:
    """A request as it came; field names in lower case."""

    fields: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """The id that an answer must repeat."""
        return self.fields["x-runr-request-id"]


class RawServer:
    """Runs `serve` for each connection and closes it afterwards. An async context manager."""

    def __init__(self, serve: Serve, *, host: str = "127.0.0.1") -> None:
        self._serve = serve
        self._host = host
        self.connections = 0
        """Connections that were opened, ever."""
        self.open_now = 0
        self.most_open = 0
        self.port = 0
        self._listener = Listener(self._serve_one)

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/"

    async def __aenter__(self) -> Self:
        self.port = await self._listener.start(self._host)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.stop()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            await self._serve(reader, writer)
        finally:
            self.open_now -= 1


async def read_request(reader: asyncio.StreamReader) -> Asked:
    """The next request of a connection."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(fields, await reader.readexactly(int(fields["content-length"])))


def answer(body: bytes, request_id: str | None = None, *fields: str, status: str = "200 OK") -> bytes:
    """A whole answer, with the id if there is one."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields]
    if request_id is not None:
        lines.append(f"X-RunR-Request-Id: {request_id}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
