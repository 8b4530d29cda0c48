"""Around every call of a server: its trace, its caller, and its errors in the shape of the one table.

Outside in: errors (so that whatever fails below is masked or mapped), trace, authentication and permission, what no
request may hold, servicer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from opentelemetry.trace import SpanKind
from runr.workflows.v1 import options_pb2

from services.core.domain.caller import Caller
from services.core.domain.errors import DomainError, Malformed, PermissionDenied, Unsupported
from services.core.rpc.authorize import identify, permission_of, require
from services.core.rpc.call_context import Authenticator, Call, Once, enter_call
from services.core.rpc.call_meter import CallMeter, code_of
from services.core.rpc.named_writes import WRITE_NAME, perform_named
from services.core.rpc.request_check import check_request, deserializer
from services.core.rpc.status import DEFAULT_DETAILS_BYTES, MAX_DETAILS_BYTES, internal_error, row_of, to_grpc
from services.core.runtime.telemetry import Telemetry
from services.core.runtime.traceparent import extract, received

log = logging.getLogger(__name__)

DETAILS_LIMIT = "x-error-details-limit"

JUDGE_AGAIN_S = 5.0
"""So long a stream's answers go on by what its token could do before."""

_HEALTH = "/grpc.health.v1."
_WAITS = "Await"
"""How the names of methods begin that change nothing and may last longer than their token."""


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Wraps the handler of every method."""

    def __init__(
        self,
        authenticator: Authenticator,
        telemetry: Telemetry,
        meter: CallMeter | None = None,
        once: Once | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._meter = meter or CallMeter()
        self._once = once

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """The handler of the method, wrapped; gRPC answers by itself for a method that is not registered."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        around = _Around(handler_call_details, self._authenticator, self._telemetry, self._meter)
        if handler.response_streaming:
            inner = handler.unary_stream or handler.stream_stream
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            behavior: Any = around.streaming(inner)
        else:
            inner = handler.unary_unary or handler.stream_unary
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            behavior = around.single(inner, self._once)
        if handler.request_streaming:
            return make(behavior, handler.request_deserializer, handler.response_serializer)
        return make(behavior, deserializer(handler.request_deserializer), handler.response_serializer)


class _Judging:
    """The context of a stream for a servicer that writes its answers: each is judged before, as those that are
    yielded are.
    """

    def __init__(self, context: Any, judge: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._judge = judge

    async def write(self, message: Any) -> None:
        """Write an answer. Raises what the judgement raises."""
        await self._judge()
        await self._context.write(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _Around:
    """One call, from its arrival to its status."""

    def __init__(self, details: Any, authenticator: Authenticator, telemetry: Telemetry, meter: CallMeter) -> None:
        self._method: str = details.method
        self._metadata: Mapping[str, str | bytes] = dict(details.invocation_metadata or ())
        self._authenticator = authenticator
        self._telemetry = telemetry
        self._meter = meter
        self._begun_s = meter.now_s()
        self._is_stream = False
        self._parent = received(self._text("traceparent"), self._text("tracestate"))
        self._traceparent = telemetry.reserve(self._parent)
        identity = extract(self._traceparent)
        self._trace_id = f"{identity.trace_id:032x}" if identity else secrets.token_hex(16)
        self._start_ns = telemetry.now_ns()
        self._is_shared = False
        self._caller: Caller | None = None
        self._judged_s = 0.0

    def single(
        self, inner: Callable[[Any, Any], Any], once: Once | None = None
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        async def behavior(request: Any, context: Any) -> Any:
            error: BaseException | None = None
            try:
                await self._enter(request)
                name = self._text(WRITE_NAME)
                if name is not None:
                    return await perform_named(once, name, inner, request, context)
                result = inner(request, context)
                answer = await result if hasattr(result, "__await__") else result
                if self._method.rpartition("/")[2].startswith(_WAITS):
                    await self._judge_again()
                return answer
            except BaseException as caught:
                error = caught
                raise
            finally:
                await self._leave(error, context)

        return behavior

    def streaming(self, inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def behavior(request: Any, context: Any) -> AsyncIterator[Any]:
            self._is_stream = True
            error: BaseException | None = None
            try:
                await self._enter(request)
                result = inner(request, _Judging(context, self._judge_again))
                if hasattr(result, "__aiter__"):
                    async for message in result:
                        await self._judge_again()
                        yield message
                elif hasattr(result, "__await__"):
                    await result
            except BaseException as caught:
                error = caught
                raise
            finally:
                await self._leave(error, context)

        return behavior

    def _text(self, key: str) -> str | None:
        value = self._metadata.get(key)
        return value if isinstance(value, str) else None

    async def _enter(self, request: Any) -> None:
        permission = permission_of(self._method)
        self._is_shared = permission == options_pb2.PERMISSION_PER_ITEM  # each item has a span of its own
        await self._judge(permission)
        if hasattr(request, "__aiter__"):
            self._is_stream = True  # what it carries is judged as it comes
        else:
            check_request(request)
        enter_call(Call(self._method, self._caller, self._traceparent, self._trace_id))

    async def _judge(self, permission: int) -> None:
        self._judged_s = self._meter.now_s()
        self._caller = caller = await identify(permission, self._metadata, self._authenticator)
        if caller is not None:
            require(caller, permission)

    async def _judge_again(self) -> None:
        """A stream, and a call that waits, may outlive its token: nothing is told to whoever may not ask any more."""
        if self._caller is not None and self._meter.now_s() - self._judged_s >= JUDGE_AGAIN_S:
            await self._judge(permission_of(self._method))

    async def _leave(self, error: BaseException | None, context: Any) -> None:
        """Records the span and ends the call with the status of the error, if there is one that is ours to map."""
        shown = (
            self._shown(error) if isinstance(error, Exception) and not isinstance(error, grpc.aio.AbortError) else None
        )
        self._record(error, shown)
        took_s = None if self._is_stream else self._meter.now_s() - self._begun_s
        self._meter.ended(self._method, code_of(error, shown), took_s=took_s)
        if isinstance(shown, PermissionDenied) and self._caller is not None:
            await self._authenticator.denied(self._caller, self._method)
        if shown is not None:
            await context.abort_with_status(to_grpc(shown, max_bytes=self._details_bytes()))

    def _record(self, error: BaseException | None, shown: DomainError | None) -> None:
        if self._method.startswith(_HEALTH) or self._is_shared or not self._telemetry.follows(self._traceparent):
            return
        name = self._method.removeprefix("/")
        fault = str(shown) if shown is not None and row_of(shown).http >= 500 else None
        if isinstance(error, asyncio.CancelledError):
            fault = "the caller went away"
        self._telemetry.record(
            name,
            start_ns=self._start_ns,
            end_ns=self._telemetry.now_ns(),
            parent=self._parent,
            identity=self._traceparent,
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.method": name},
            error=fault,
        )

    def _shown(self, error: Exception) -> DomainError:
        if isinstance(error, DomainError) and type(error) is not DomainError:
            return error
        if isinstance(error, DecodeError) and self._is_stream:
            return Malformed("what came on the stream is no message of this method")
        if isinstance(error, NotImplementedError):
            return Unsupported(f"{self._method.rpartition('/')[2]} is not in this version")
        log.error("call failed", exc_info=error, extra={"method": self._method, "trace_id": self._trace_id})
        return internal_error(self._trace_id)

    def _details_bytes(self) -> int:
        wanted = self._metadata.get(DETAILS_LIMIT)
        if not isinstance(wanted, str) or not wanted.isascii() or not wanted.isdigit() or len(wanted) > 9:
            return DEFAULT_DETAILS_BYTES
        return max(DEFAULT_DETAILS_BYTES, min(int(wanted), MAX_DETAILS_BYTES))
