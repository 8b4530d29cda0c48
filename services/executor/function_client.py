"""The seam to the functions: one signed POST, one raw answer (protocol sections 1 and 2).

`FunctionClient` is what the executor needs; `HttpFunctionClient` does it over HTTP. Nothing here reads a body: what
the bytes say is judged in `core/domain/answer.py`.

A request is sent once. When a connection dies after the request was handed to it, nobody can tell whether the function
ran, so the loss is a failed function attempt (`FunctionUnreachable`) and the run's own retry, with its backoff and its
count, sends the request again: a second execution of a step is never hidden in here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Literal, Protocol, Self

import msgspec

from services.core.domain import envelope
from services.core.domain.endpoint import EndpointPolicy, ParsedEndpoint
from services.core.domain.op import FunctionFault
from services.core.domain.safe_text import cut, storable
from services.core.domain.signature import signature_header
from services.executor.content_coding import decode_prefix, decode_whole
from services.executor.endpoint_guard import EndpointGuard, Lookup, SystemLookup
from services.executor.lean_http.client import Answer, LeanClient, Request
from services.executor.lean_http.connection import Origin
from services.executor.lean_http.dial import Dialer
from services.executor.lean_http.errors import AddressRefused, AnswerTooBig, BadAnswer, HttpError, OutOfTime

MAX_ANSWER_BYTES = 8 * 1024 * 1024
_FAILURE_BYTES = 64 * 1024
_REASON_BYTES = 1024
_SEAL_IN_THREAD_CHARS = 256 * 1024
_ROUTES = 4096
_DEFAULT_PORT = {"http": 80, "https": 443}
_NOT_IN_A_FIELD = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

RequestKind = Literal["execute", "introspect"]


class Target(msgspec.Struct, frozen=True):
    """A function: its URL, and the signing keys, the current one first and during a rotation the one before."""

    url: str
    keys: tuple[str, ...]
    verify_tls: bool = True

    def __repr__(self) -> str:
        return f"Target(url={self.url!r}, keys=<{len(self.keys)}>, verify_tls={self.verify_tls})"


class RawAnswer(msgspec.Struct, frozen=True):
    """What came back: any status, and a body of at most `MAX_ANSWER_BYTES`."""

    status: int
    body: bytes


class WrittenHeaders(dict[str, str]):
    """Headers that several requests carry: checked and written once."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Raises ValueError for what no field can hold."""
        super().__init__(headers)
        self.lines = _lines(headers)


class _Route(msgspec.Struct, frozen=True):
    """What all requests to a URL begin with, and where they go."""

    origin: Origin
    beginning: str


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
    """`FunctionClient` over HTTP/1.1. Used as an async context manager."""

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
        dialer = Dialer(resolve=self._guard.resolve, open_socket=self._guard.open_socket, timeout_s=connect_timeout_s)
        self._http = LeanClient(dialer, max_body=max_answer_bytes, max_other_body=_FAILURE_BYTES)
        self._route = lru_cache(_ROUTES)(self._find_route)
        self._unix_seconds = unix_seconds
        self._max_answer_bytes = max_answer_bytes
        self._same_fields = (
            "Content-Type: application/json\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"
            f"User-Agent: RunR-Workflows/{version}\r\nX-RunR-Protocol: {envelope.PROTOCOL}\r\n"
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.__aexit__(exc_type, exc, traceback)
        if self._own_lookup is not None:
            self._own_lookup.close()

    async def call(
        self, target: Target, kind: RequestKind, request_text: str, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        """See `FunctionClient.call`."""
        route = self._route(target.url, target.verify_tls)
        if len(request_text) > _SEAL_IN_THREAD_CHARS:
            # Signed and escaped off the loop.
            signature, body = await asyncio.to_thread(_sealed, target.keys, self._unix_seconds(), request_text)
        else:
            signature, body = _sealed(target.keys, self._unix_seconds(), request_text)
        own = headers.lines if isinstance(headers, WrittenHeaders) else _lines(headers)
        request = Request(
            route.beginning,
            f"{self._same_fields}X-RunR-Request: {kind}\r\nX-RunR-Signature: {signature}\r\n{own}",
            body,
        )
        try:
            answer = await self._http.post(route.origin, request, timeout_s)
        except HttpError as error:
            raise _fault(error, timeout_s) from error
        except AddressRefused as error:
            raise FunctionFault("EndpointRefused", str(error)) from error
        if answer.encoding in ("", "identity"):
            return RawAnswer(answer.status, answer.body)
        return RawAnswer(answer.status, self._decoded(answer))

    def _find_route(self, url: str, verify_tls: bool) -> _Route:
        """Raises FunctionFault `EndpointRefused`."""
        endpoint = self._guard.endpoint(url)
        return _Route(
            Origin(endpoint.scheme, endpoint.host, endpoint.port, verify_tls),
            f"POST {endpoint.target} HTTP/1.1\r\nHost: {_host_field(endpoint)}\r\n",
        )

    def _decoded(self, answer: Answer) -> bytes:
        """The body without its Content-Encoding. None was asked for, but a proxy may have put one around it."""
        if answer.status != 200:
            return decode_prefix(answer.body, answer.encoding, _FAILURE_BYTES)
        return decode_whole(answer.body, answer.encoding, self._max_answer_bytes)


def _sealed(keys: tuple[str, ...], t: int, request_text: str) -> tuple[str, bytes]:
    header = signature_header(keys, t, request_text)
    return header, envelope.seal(request_text, header)


def _lines(headers: Mapping[str, str]) -> str:
    if _NOT_IN_A_FIELD.search("".join(headers.values())):
        raise ValueError(f"not the values of headers: {headers!a}")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def _host_field(endpoint: ParsedEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host.removesuffix(".")
    return host if endpoint.port == _DEFAULT_PORT[endpoint.scheme] else f"{host}:{endpoint.port}"


def _fault(error: HttpError, timeout_s: float) -> FunctionFault:
    if isinstance(error, OutOfTime):
        return FunctionFault("FunctionTimeout", f"no complete answer within {timeout_s:g} s")
    if isinstance(error, AnswerTooBig):
        return FunctionFault("AnswerTooLarge", str(error))
    name = "ProtocolError" if isinstance(error, BadAnswer) else "FunctionUnreachable"
    return FunctionFault(name, cut(storable(" ".join(str(error).split())), _REASON_BYTES))
