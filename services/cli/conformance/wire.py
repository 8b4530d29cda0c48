"""One connection to a function, with everything in sight: what is written, and what comes back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from services.core.domain.op import FunctionFault
from services.executor.content_coding import decode_whole
from services.executor.function_client import MAX_ANSWER_BYTES
from services.executor.lean_http.answer import AnswerParser
from services.executor.lean_http.client import ID_FIELD
from services.executor.lean_http.errors import HttpError
from services.executor.lean_http.head import parse_head

_SHOWN = 400
_PAUSE_S = 0.1
_WRITE_BYTES = 256 * 1024


class NoAnswer(Exception):
    """There is no complete answer; the text says what happened instead."""


class NotReachable(NoAnswer):
    """There was no connection."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `request_id`: X-RunR-Request-Id, None without; `persists`: the connection stays open."""

    status: int
    body: bytes
    request_id: str | None
    persists: bool

    def shown(self) -> str:
        """For a report: the status and the beginning of the body."""
        return f"HTTP {self.status} {shown(self.body)}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function is."""

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str, *, verify_tls: bool) -> Place:
        """The parts of a URL of HTTP that has a host."""
        parts = urlsplit(url)
        tls = None
        if parts.scheme == "https":
            tls = ssl.create_default_context()
            if not verify_tls:
                tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), path, tls)

    @property
    def host_field(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class Wire:
    """A connection; an async context manager. Errors of it are NoAnswer."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._line = _Line()
        self._transport: asyncio.Transport

    async def __aenter__(self) -> Self:
        place, loop = self._place, asyncio.get_running_loop()
        try:
            made = await loop.create_connection(lambda: self._line, place.host, place.port, ssl=place.tls)
        except OSError as error:
            raise NotReachable(f"no connection: {error}") from error
        self._transport = made[0]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.abort()
        await self._line.lost.wait()

    async def exchange(self, headers: Mapping[str, str], body: bytes, *, split_after: int | None = None) -> Reply:
        """Write a request and read its answer. `split_after`: bytes of the body, after which there is a pause."""
        read_head = partial(parse_head, id_field=ID_FIELD.lower().encode())
        parser = AnswerParser(max_body=MAX_ANSWER_BYTES, max_other_body=MAX_ANSWER_BYTES, read_head=read_head)
        writing = asyncio.ensure_future(self._write(headers, body, split_after))
        try:
            while not await self._line.feed(parser):
                pass
        except (HttpError, OSError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        return _reply(parser)

    async def _write(self, headers: Mapping[str, str], body: bytes, split_after: int | None) -> None:
        fields = {"Host": self._place.host_field, "Content-Length": str(len(body)), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._transport.write(f"POST {self._place.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
        if split_after is not None:
            self._transport.write(body[:split_after])
            await asyncio.sleep(_PAUSE_S)
            body = body[split_after:]
        for start in range(0, len(body), _WRITE_BYTES):
            if self._line.lost.is_set():
                return
            self._transport.write(body[start : start + _WRITE_BYTES])
            await self._line.writable.wait()


class _Line(asyncio.Protocol):
    """Keeps what came, also when the connection breaks behind it: a server may answer before it has read all."""

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self._came: list[bytes] = []
        self._changed = asyncio.Event()
        self.lost = asyncio.Event()
        self._error: Exception | None = None

    async def feed(self, parser: AnswerParser) -> bool:
        """Give the parser what has come, or wait; whether the answer is complete. Raises HttpError and OSError."""
        if self._came:
            return parser.feed(self._came.pop(0))
        if self.lost.is_set():
            parser.end()
            if self._error is not None:
                raise OSError(str(self._error) or type(self._error).__name__)
            return True
        self._changed.clear()
        await self._changed.wait()
        return False

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._came.append(data)
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`; that the server has closed its side closes ours."""
        self._error = exc
        self.lost.set()
        self.writable.set()
        self._changed.set()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.writable.set()


def shown(body: bytes | str) -> str:
    """The beginning of a body, on one line."""
    text = body[: 4 * _SHOWN].decode(errors="replace") if isinstance(body, bytes) else body
    more = "" if len(text) <= _SHOWN and len(body) <= 4 * _SHOWN else f" … ({len(body)} bytes)"
    return " ".join(text[:_SHOWN].split()) + more


def _reply(parser: AnswerParser) -> Reply:
    head = parser.head
    assert head is not None, "an answer that is complete has a head"
    body = parser.body
    encoding = head.encoding.decode("latin-1")
    if encoding not in ("", "identity"):
        try:
            body = decode_whole(body, encoding, MAX_ANSWER_BYTES)
        except FunctionFault as fault:
            raise NoAnswer(str(fault)) from fault
    request_id = None if head.request_id is None else head.request_id.decode("latin-1")
    return Reply(head.status, body, request_id, head.persists)
