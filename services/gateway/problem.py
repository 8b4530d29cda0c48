"""Errors as RFC 9457 `application/problem+json` (engine section 3)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from aiohttp import web

from services.core.domain.errors import DomainError, FieldError, Malformed, NotFound, RateLimited, TooLarge, Unavailable
from services.core.rpc.status import internal_error, row_of

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
_TYPE_BASE = "https://workflows.runr.dev/problems/"
_RETRY_AFTER_S = "1"


class MethodNotAllowed(DomainError):
    """The path exists, the method does not. `metadata["allow"]` lists the ones that do."""

    reason = "METHOD_NOT_ALLOWED"


class SlowClient(DomainError):
    """The request did not arrive in time."""

    reason = "REQUEST_TIMEOUT"


class UnsupportedEncoding(DomainError):
    """The body is compressed."""

    reason = "UNSUPPORTED_ENCODING"


class UnknownExpectation(DomainError):
    """The request expects what nobody here can promise."""

    reason = "UNKNOWN_EXPECTATION"


class Problem(msgspec.Struct, kw_only=True):
    """The body of an error answer."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemError]
    trace_id: str


class ProblemError(msgspec.Struct):
    """One fault of the input; `path` is like `events[3].name`, empty for the whole body."""

    path: str
    message: str


def problem_of(error: DomainError, trace_id: str) -> Problem:
    """What is said of a failed request."""
    status, title = _status(error)
    return Problem(
        type=_TYPE_BASE + error.reason.lower().replace("_", "-"),
        title=title,
        status=status,
        detail=_valid(error.message),
        errors=[ProblemError(_valid(fault.path), _valid(fault.message)) for fault in _faults(error)],
        trace_id=trace_id,
    )


def problem_response(error: DomainError, trace_id: str) -> web.Response:
    """The answer to a failed request."""
    problem = problem_of(error, trace_id)
    return web.Response(
        status=problem.status,
        body=msgspec.json.encode(problem),
        content_type=CONTENT_TYPE,
        headers=_headers(error, problem.status),
    )


def as_domain_error(error: Exception, trace_id: str) -> DomainError:
    """What a caller may see of an exception: errors of the domain and of the router as they are, others masked."""
    if isinstance(error, DomainError) and type(error) is not DomainError:
        return error
    if isinstance(error, web.HTTPNotFound):
        return NotFound("there is no such path", reason="UNKNOWN_PATH")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return MethodNotAllowed(f"{error.method} is not allowed here, only {allowed}", metadata={"allow": allowed})
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return TooLarge("the request is too large")
    if isinstance(error, web.HTTPException) and 400 <= error.status < 500:
        return Malformed(error.reason)
    if isinstance(error, DomainError):
        # A service has logged it already and masked it.
        return internal_error(error.metadata.get("trace_id", trace_id))
    log.error("request failed", exc_info=error, extra={"trace_id": trace_id})
    return internal_error(trace_id)


def retry_after(error: DomainError) -> str | None:
    """After how many seconds it may go better; None where time changes nothing."""
    return error.metadata.get("retry_after_s", _RETRY_AFTER_S if isinstance(error, Unavailable | RateLimited) else None)


def _status(error: DomainError) -> tuple[int, str]:
    if isinstance(error, MethodNotAllowed):
        return 405, "Method not allowed"
    if isinstance(error, SlowClient):
        return 408, "Request timeout"
    if isinstance(error, UnsupportedEncoding):
        return 415, "Unsupported encoding"
    if isinstance(error, UnknownExpectation):
        return 417, "Expectation failed"
    row = row_of(error)
    return row.http, row.title


def _faults(error: DomainError) -> list[FieldError]:
    omitted = error.metadata.get("errors_omitted")
    more = [FieldError("", f"{omitted} more errors are not shown")] if omitted else []
    return [*error.errors, *more]


def _headers(error: DomainError, status: int) -> Mapping[str, str]:
    if status == 401:
        return {"WWW-Authenticate": 'Bearer realm="runr"'}
    if isinstance(error, MethodNotAllowed):
        return {"Allow": error.metadata["allow"]}
    seconds = retry_after(error)
    limit = error.metadata.get("rate_limit")
    headers = {} if seconds is None else {"Retry-After": seconds}
    return headers if limit is None else headers | {"RateLimit": limit}


def _valid(text: str) -> str:
    return text.encode(errors="replace").decode()
