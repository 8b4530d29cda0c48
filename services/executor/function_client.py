"""The seam to the functions: one signed POST, one raw answer (protocol sections 1 and 2).

`FunctionClient` is what the executor needs; `HttpFunctionClient` does it over HTTP. Nothing here reads a body: what
the bytes say is judged in `core/domain/answer.py`.

A request is sent once. When a connection dies after the request was handed to it, nobody can tell whether the function
ran, so the loss is a failed function attempt (`FunctionUnreachable`) and the run's own retry, with its backoff and its
count, sends the request again: a second execution of a step is never hidden in here.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

import aiohttp
from yarl import URL

from services.core.domain import envelope
from services.core.domain.endpoint import EndpointPolicy
from services.core.domain.op import FunctionFault
from services.core.domain.safe_text import cut, storable
from services.core.domain.signature import signature_header
from services.executor.endpoint_guard import AddressRefused, EndpointGuard, Lookup, SystemLookup

MAX_ANSWER_BYTES = 8 * 1024 * 1024
_FAILURE_BYTES = 64 * 1024
_REASON_BYTES = 1024
_SEAL_IN_THREAD_CHARS = 256 * 1024
_ZLIB_OR_GZIP = 32
_CONNECTIONS_PER_HOST = 1024
_NAME_SECONDS = 1  # connections that open together share one lookup

RequestKind = Literal["execute", "introspect"]


@dataclass(frozen=True, slots=True)
class Target:
    """A function: its URL, and the signing keys, the current one first and during a rotation the one before."""

    url: str
    keys: tuple[str, ...]
    verify_tls: bool = True

    def __repr__(self) -> str:
        return f"Target(url={self.url!r}, keys=<{len(self.keys)}>, verify_tls={self.verify_tls})"


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """What came back: any status, and a body of at most `MAX_ANSWER_BYTES`."""

    status: int
    body: bytes


class FunctionClient(Protocol):
    """How the executor reaches a function."""

    async def call(
        self, target: Target, kind: RequestKind, request_text: str, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        """Send one request and read its answer.

        `headers` are those of this request alone: workflow, run, attempt, trace context. Raises FunctionFault:
        FunctionTimeout, FunctionUnreachable, AnswerTooLarge, EndpointRefused or ProtocolError. Cancelling closes the
        connection, which is how a function learns that nobody waits any more.
        """
        ...


class HttpFunctionClient:
    """`FunctionClient` over HTTP/1.1, a connection a request. Used as an async context manager."""

    def __init__(
        self,
        *,
        policy: EndpointPolicy,
        unix_seconds: Callable[[], int],
        version: str,
        connect_timeout_s: float = 10.0,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        lookup: Lookup | None = None,
    ) -> None:
        """`unix_seconds` stamps signatures; `version` is the engine's, for the User-Agent; `lookup` resolves names."""
        self._own_lookup: SystemLookup | None = None
        if lookup is None:
            lookup = self._own_lookup = SystemLookup()
        self._guard = EndpointGuard(policy, lookup, timeout_s=connect_timeout_s)
        self._unix_seconds = unix_seconds
        self._user_agent = f"RunR-Workflows/{version}"
        self._connect_timeout_s = connect_timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            resolver=self._guard,
            socket_factory=self._guard.open_socket,
            limit=0,
            limit_per_host=_CONNECTIONS_PER_HOST,
            # One request a connection. On a kept one, bytes that a server sends after its answer would be read as the
            # answer of the next request, which is another run's, and nothing in an answer names its run.
            force_close=True,
            ttl_dns_cache=_NAME_SECONDS,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
        )
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
        if self._own_lookup is not None:
            self._own_lookup.close()

    async def call(
        self, target: Target, kind: RequestKind, request_text: str, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        """See `FunctionClient.call`."""
        url = self._guard.url(target.url)
        signed, body = await self._seal(target, request_text)
        sent_headers = {
            **headers,
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": self._user_agent,
            "X-RunR-Protocol": envelope.PROTOCOL,
            "X-RunR-Request": kind,
            "X-RunR-Signature": signed,
        }
        try:
            async with asyncio.timeout(timeout_s):
                return await self._post(url, body, sent_headers, target.verify_tls)
        except TimeoutError:
            raise FunctionFault("FunctionTimeout", f"no complete answer within {timeout_s:g} s") from None

    async def _seal(self, target: Target, request_text: str) -> tuple[str, bytes]:
        """The signature header and the body; a big request is signed and escaped off the loop."""
        if len(request_text) > _SEAL_IN_THREAD_CHARS:
            return await asyncio.to_thread(_sealed, target.keys, self._unix_seconds(), request_text)
        return _sealed(target.keys, self._unix_seconds(), request_text)

    async def _post(self, url: URL, body: bytes, headers: Mapping[str, str], verify_tls: bool) -> RawAnswer:
        assert self._session is not None, "used outside of its async with"
        try:
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False, ssl=verify_tls
            ) as response:
                try:
                    return RawAnswer(response.status, await self._read(response))
                except BaseException:
                    response.close()
                    raise
        except aiohttp.ConnectionTimeoutError:
            raise _unreachable(f"no connection within {self._connect_timeout_s:g} s") from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, AddressRefused):
                raise FunctionFault("EndpointRefused", str(error.os_error)) from error
            raise _unreachable(str(error)) from error
        except aiohttp.ClientResponseError as error:
            raise _not_protocol(f"the answer is not HTTP: {error.message}") from error
        except aiohttp.InvalidURL as error:
            raise FunctionFault("EndpointRefused", storable(f"not a URL that can be called: {error}")) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(str(error) or type(error).__name__) from error

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body, decoded. Stops at the first byte over the limit, whatever length was announced.

        Of a failure only the beginning is wanted: it is cut, and is not `AnswerTooLarge`.
        """
        is_answer = response.status == 200
        limit = self._max_answer_bytes if is_answer else _FAILURE_BYTES
        body = bytearray()
        if is_answer and response.content_length is not None and response.content_length > limit:
            raise _too_large(limit, f"{response.content_length} are announced")
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                if is_answer:
                    raise _too_large(limit, "more came")
                response.close()
                return bytes(body[:limit])
        return _decoded(bytes(body), response.headers.get("Content-Encoding", "identity").strip().lower(), limit)


def _sealed(keys: tuple[str, ...], t: int, request_text: str) -> tuple[str, bytes]:
    header = signature_header(keys, t, request_text)
    return header, envelope.seal(request_text, header)


def _decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its Content-Encoding. None was asked for, but a proxy may have put one around it."""
    if encoding in ("", "identity") or not body:
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise _not_protocol(f"the answer has the Content-Encoding {encoding[:40]!r}, which was not asked for")
    unzip = zlib.decompressobj(zlib.MAX_WBITS | _ZLIB_OR_GZIP)
    try:
        plain = unzip.decompress(body, limit + 1)
    except zlib.error as error:
        raise _not_protocol(f"the answer is not {encoding}: {error}") from None
    if len(plain) > limit:
        raise _too_large(limit, f"{len(body)} bytes of {encoding} hold more")
    if not unzip.eof:
        raise _not_protocol(f"the answer's {encoding} ends too early")
    return plain


def _too_large(limit: int, found: str) -> FunctionFault:
    return FunctionFault("AnswerTooLarge", f"an answer may have {limit} bytes, {found}")


def _not_protocol(reason: str) -> FunctionFault:
    return FunctionFault("ProtocolError", cut(storable(" ".join(reason.split())), _REASON_BYTES))


def _unreachable(reason: str) -> FunctionFault:
    return FunctionFault("FunctionUnreachable", cut(storable(reason), _REASON_BYTES))
