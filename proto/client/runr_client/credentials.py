"""Who calls: the token and the tenant that every call of a channel carries, and how long a call may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc

_DETAILS_LIMIT = ("x-error-details-limit", "262144")
"""Details of errors beyond what other clients of gRPC can take are welcome."""


@dataclass(frozen=True)
class Credentials:
    """`token` is the text of an API token, or a function that tells it for each call, for one that is replaced in time.
    `tenant` is the slug of one of its tenants; without it the token's own. `timeout_s` is the deadline of calls that
    are made without one; streams have none.
    """

    token: str | Callable[[], str] = field(repr=False)
    tenant: str | None = None
    timeout_s: float = 30.0

    def metadata(self) -> list[tuple[str, str]]:
        """What a call carries."""
        token = self.token() if callable(self.token) else self.token
        if not token.isascii() or not token.isprintable() or not token.strip():
            # gRPC would say so too, and show the token.
            raise ValueError("a token must be visible ASCII characters")
        found = [("authorization", f"Bearer {token}"), _DETAILS_LIMIT]
        return found if self.tenant is None else [*found, ("x-tenant-id", self.tenant)]


class Details(NamedTuple):
    """The details of a call, as interceptors are given and give them."""

    method: Any
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any = None


class _Details(Details, grpc.ClientCallDetails):  # type: ignore[misc]
    pass


def with_credentials(credentials: Credentials, details: Any, *, has_deadline: bool) -> Any:
    """The details of a call with what every call carries. What the call says itself stands."""
    given = list(details.metadata or ())
    said = {name for name, _ in given}
    metadata = given + [(name, value) for name, value in credentials.metadata() if name not in said]
    timeout = details.timeout
    if timeout is None and has_deadline:
        timeout = credentials.timeout_s
    return metadata, timeout


class _Blocking(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """For channels of `grpc`."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def _made(self, details: Any, *, has_deadline: bool) -> Any:
        metadata, timeout = with_credentials(self._credentials, details, has_deadline=has_deadline)
        wait_for_ready, compression = getattr(details, "wait_for_ready", None), getattr(details, "compression", None)
        return _Details(details.method, timeout, metadata, details.credentials, wait_for_ready, compression)

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._made(client_call_details, has_deadline=True), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._made(client_call_details, has_deadline=False), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(self._made(client_call_details, has_deadline=False), request_iterator)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(self._made(client_call_details, has_deadline=False), request_iterator)


class _Async:
    def __init__(self, credentials: Credentials, *, has_deadline: bool) -> None:
        self._credentials = credentials
        self._has_deadline = has_deadline

    async def _intercept(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata, timeout = with_credentials(self._credentials, details, has_deadline=self._has_deadline)
        made = grpc.aio.ClientCallDetails(
            method=details.method,
            timeout=timeout,
            metadata=grpc.aio.Metadata(*metadata),
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
        )
        return await continuation(made, request)


class _AsyncUnaryUnary(_Async, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._intercept(continuation, client_call_details, request)


class _AsyncUnaryStream(_Async, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._intercept(continuation, client_call_details, request)


class _AsyncStreamUnary(_Async, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._intercept(continuation, client_call_details, request_iterator)


class _AsyncStreamStream(_Async, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._intercept(continuation, client_call_details, request_iterator)


def interceptors(credentials: Credentials) -> Sequence[Any]:
    """For `grpc.intercept_channel`."""
    return (_Blocking(credentials),)


def aio_interceptors(credentials: Credentials) -> Sequence[Any]:
    """For channels of `grpc.aio`, which take one interceptor for each kind of call."""
    return (
        _AsyncUnaryUnary(credentials, has_deadline=True),
        _AsyncUnaryStream(credentials, has_deadline=False),
        _AsyncStreamUnary(credentials, has_deadline=False),
        _AsyncStreamStream(credentials, has_deadline=False),
    )
