"""HTTP for the async client: HTTP/1.1 on the streams of asyncio, with connections kept for the next request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping

from .errors import ApiUnreachable
from .exchange import Reply, Request
from .settings import ClientSettings

MOST_IDLE = 16
_HEAD_BYTES = 64 * 1024
_LINE_BYTES = 1024

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _BadAnswer(Exception):
    """What came is no HTTP/1.1."""


class AsyncioHttp:
    """Requests to one server, on the running loop; on another loop it begins anew."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._tls = ssl.create_default_context() if settings.is_tls else None
        self._idle: list[_Streams] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def exchange(self, request: Request) -> Reply:
        """The answer to a request. Raises ApiUnreachable."""
        streams: _Streams | None = None
        place = f"{self._settings.host}:{self._settings.port}"
        try:
            async with asyncio.timeout(request.timeout_s):
                streams = await self._connection(request)
                reply, keeps = await _exchange(streams, request, self._host)
        except (OSError, EOFError, ValueError, _BadAnswer, asyncio.LimitOverrunError) as error:
            _abort(streams)
            raise ApiUnreachable(f"{place}: {_reason(error)}", was_sent=streams is not None) from error
        except BaseException:
            _abort(streams)
            raise
        if keeps and len(self._idle) < MOST_IDLE:
            self._idle.append(streams)
        else:
            streams[1].close()
        return reply

    async def close(self) -> None:
        """Closes the connections that are kept."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @property
    def _host(self) -> str:
        host, port = self._settings.host, self._settings.port
        name = f"[{host}]" if ":" in host else host
        return name if port == (443 if self._settings.is_tls else 80) else f"{name}:{port}"

    async def _connection(self, request: Request) -> _Streams:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._idle = loop, []
        while self._idle and not request.is_fresh:
            streams = self._idle.pop()
            if not (streams[0].at_eof() or streams[1].is_closing()):
                return streams
            _abort(streams)
        return await asyncio.open_connection(self._settings.host, self._settings.port, ssl=self._tls, limit=_HEAD_BYTES)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection broke before the answer was complete"
    return str(error) or type(error).__name__


def _abort(streams: _Streams | None) -> None:
    if streams is not None:
        streams[1].transport.abort()


async def _exchange(streams: _Streams, request: Request, host: str) -> tuple[Reply, bool]:
    """The answer, and whether the connection is good for another request."""
    reader, writer = streams
    body = request.body or b""
    lines = [f"{request.method} {request.target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body is not None or request.method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(body)}")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    await writer.drain()
    status, headers = await _head(reader)
    while 100 <= status < 200:
        status, headers = await _head(reader)
    content, is_bounded = await _body(reader, status, headers)
    keeps = is_bounded and headers.get("connection", "").lower() != "close"
    return Reply(status, headers, content), keeps


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text[:-4].split("\r\n")
    version, _, rest = first.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or not rest[:3].isdigit():
        raise _BadAnswer(f"what answers is no HTTP server: {first[:100]!r}")
    headers: dict[str, str] = {} if version == "HTTP/1.1" else {"connection": "close"}
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator:
            raise _BadAnswer(f"{line[:100]!r} is no header")
        headers.setdefault(name.strip().lower(), value.strip())
    return int(rest[:3]), headers


async def _body(reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
    """The body, and whether its end is known other than by the connection's."""
    if status in (204, 304):
        return b"", True
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader), True
    length = headers.get("content-length")
    if length is None:
        return await reader.read(), False
    if not length.isascii() or not length.isdigit():
        raise _BadAnswer(f"{length[:100]!r} is no length")
    return await reader.readexactly(int(length)), True


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        line = await reader.readuntil(b"\r\n")
        if len(line) > _LINE_BYTES:
            raise _BadAnswer("the size of a chunk is too long")
        size = int(line.split(b";")[0].strip(), 16)
        if size == 0:
            break
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(parts)
