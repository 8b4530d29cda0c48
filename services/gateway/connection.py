"""A connection of the gateway, as a class for aiohttp, for what never reaches the application: bytes that are no
request, and what the framework itself refuses. It is answered as every other error is, as a problem with a trace id.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from services.core.domain.errors import DomainError, Malformed
from services.gateway.observe import REQUEST_HEADER, TRACE_HEADER
from services.gateway.problem import UnknownExpectation, as_domain_error, problem_response

log = logging.getLogger(__name__)

# Longer than what balancers keep idle connections (60 s), so that they close first. It is also what a client has for
# sending its headers.
_KEEPALIVE_S = 75.0
_LINGER_S = 2.0
_MAX_FIELD_BYTES = 16 * 1024
# The parser says what is wrong, this, and then what it was given.
_SHOWN = ":\n\n"


class Connection(web.RequestHandler):
    """Says what is wrong in words of its own: those of aiohttp show what was sent, `Authorization` included."""

    __slots__ = ()

    def __init__(self, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None: it keeps none
            logger=log,
            # A few compressed bytes may hold gigabytes, and broken ones would end the connection without an answer.
            auto_decompress=False,
            keepalive_timeout=_KEEPALIVE_S,
            lingering_time=_LINGER_S,
            max_field_size=_MAX_FIELD_BYTES,
            max_line_size=_MAX_FIELD_BYTES,
        )

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, and to what failed around the application; the last of its connection.
        Raises ConnectionError where there is nobody to answer, or an answer has begun.
        """
        if isinstance(exc, ConnectionError):
            log.debug("a client has gone before it had its answer")
            raise exc
        response = _problem(exc if isinstance(exc, Exception) else TimeoutError(f"answered {status}"))
        if request.writer.output_size > 0:
            raise ConnectionError("another answer has begun")
        response.force_close()
        response.headers["Connection"] = "close"
        return response

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Go on reading where it was stopped. Every body that is read asks for it; nearly none has stopped it."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        """Send an answer. One that is an exception is from before the application was asked."""
        if isinstance(resp, web.HTTPException):
            resp = _problem(resp)
        return super().finish_response(request, resp, start_time)


def _problem(fault: Exception) -> web.Response:
    trace_id = secrets.token_hex(16)
    response = problem_response(_told(fault, trace_id), trace_id)
    response.headers[TRACE_HEADER] = response.headers[REQUEST_HEADER] = trace_id
    return response


def _told(fault: Exception, trace_id: str) -> DomainError:
    if isinstance(fault, web.HTTPExpectationFailed):
        return UnknownExpectation("of Expect only 100-continue is understood")
    if not isinstance(fault, HttpProcessingError):
        return as_domain_error(fault, trace_id)
    log.debug("what a client sent is not HTTP", extra={"fault": type(fault).__name__, "trace_id": trace_id})
    if isinstance(fault, LineTooLong):
        return Malformed(f"the request line and each header are limited to {_MAX_FIELD_BYTES} bytes", reason="NOT_HTTP")
    said, shows, _ = fault.message.partition(_SHOWN)
    why = f": {said}" if shows else ""
    return Malformed(f"this is no request of HTTP/1.1{why}", reason="NOT_HTTP")
