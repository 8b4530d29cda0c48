"""Around every HTTP request: one span, one trace id, errors as problems, and an answer that is sent in time."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from opentelemetry.trace import SpanKind

from services.core.runtime.pooled_random import PooledRandom
from services.core.runtime.telemetry import Telemetry
from services.core.runtime.traceparent import extract, received
from services.gateway.problem import as_domain_error, problem_response

log = logging.getLogger(__name__)

TRACE_HEADER = "x-trace-id"
REQUEST_HEADER = "x-request-id"
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")

# Well below what a transport takes before it asks its writer to wait.
_SMALL_BYTES = 16 * 1024
PROBES = ("/healthz", "/readyz")


class RequestTrace(NamedTuple):
    """The trace of a request: what goes on to the services, and the id that problems and answers name."""

    parent: str | None
    traceparent: str
    trace_id: str


REQUEST_TRACE = web.RequestKey("runr_trace", RequestTrace)


def observing(telemetry: Telemetry, *, write_timeout_s: float) -> Middleware:
    """The outermost middleware. An answer that its client does not take within `write_timeout_s` is cut off."""

    source = PooledRandom()

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        start_ns = telemetry.now_ns()
        trace = _trace(telemetry, _received(request), source)
        request[REQUEST_TRACE] = trace
        try:
            response = await handler(request)
        except Exception as error:
            response = problem_response(as_domain_error(error, trace.trace_id), trace.trace_id)
        except asyncio.CancelledError:
            # What the services did for it is in its trace already: it must not be without its root.
            _record(telemetry, trace, request, None, start_ns)
            raise
        response.headers[TRACE_HEADER] = trace.trace_id
        response.headers[REQUEST_HEADER] = _request_id(request, trace)
        _record(telemetry, trace, request, response.status, start_ns)
        await _send(request, response, write_timeout_s)
        return response

    return observe


def _received(request: web.Request) -> str | None:
    traceparent = request.headers.get("traceparent")
    if traceparent is None:
        return None
    # A `tracestate` may be spread over several headers.
    return received(traceparent, ",".join(request.headers.getall("tracestate", ())))


def _request_id(request: web.Request, trace: RequestTrace) -> str:
    """What the caller calls its request, or else what we call it."""
    given = request.headers.get(REQUEST_HEADER)
    return given if given is not None and _REQUEST_ID.fullmatch(given) else trace.trace_id


def _trace(telemetry: Telemetry, parent: str | None, source: PooledRandom) -> RequestTrace:
    if parent is None and not telemetry.enabled:
        return _untraced(source)
    traceparent = telemetry.reserve(parent)
    identity = extract(traceparent)
    if identity is not None:
        return RequestTrace(parent, traceparent, f"{identity.trace_id:032x}")
    return _untraced(source)


def _untraced(source: PooledRandom) -> RequestTrace:
    """Traces are off. The id still leads from an answer to the log lines of every service, and to the run."""
    drawn = source.hex(24)
    return RequestTrace(None, f"00-{drawn[:32]}-{drawn[32:]}-00", drawn[:32])


def _record(telemetry: Telemetry, trace: RequestTrace, request: web.Request, status: int | None, start_ns: int) -> None:
    """Record the request's span; `status` None: it was cut off."""
    if not telemetry.follows(trace.traceparent):
        return
    template = route_of(request)
    if template.endswith(PROBES):
        return
    answered = {} if status is None else {"http.response.status_code": status}
    telemetry.record(
        f"{request.method} {template}",
        start_ns=start_ns,
        end_ns=telemetry.now_ns(),
        parent=trace.parent,
        identity=trace.traceparent,
        kind=SpanKind.SERVER,
        attributes={"http.request.method": request.method, "http.route": template, **answered},
        error="cut off" if status is None else f"answered {status}" if status >= 500 else None,
    )


def route_of(request: web.Request) -> str:
    """The path of a request's route without what is filled in: that may be a secret."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown path"


async def _send(request: web.Request, response: web.StreamResponse, timeout_s: float) -> None:
    if _fits(request, response):
        await response.prepare(request)
        await response.write_eof()
        return
    try:
        async with asyncio.timeout(timeout_s):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        log.warning("a client does not take its answer", extra={"path": route_of(request)})
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not take its answer") from None


def _fits(request: web.Request, response: web.StreamResponse) -> bool:
    """Whether an answer is small and nothing is before it: it goes without waiting for its client."""
    if not isinstance(response, web.Response) or request.transport is None:
        return False
    body = response.body
    small = body is None or (isinstance(body, bytes) and len(body) <= _SMALL_BYTES)
    return small and request.transport.get_write_buffer_size() == 0
