"""THE table DomainError ↔ gRPC status with details ↔ HTTP, used by every servicer and by the gateway.

An error travels as its gRPC code, google.rpc.ErrorInfo (reason, domain, metadata) and, for bad input,
google.rpc.BadRequest with every fault by path. `ErrorInfo.metadata["kind"]` names the row of the table, so that an
error whose reason is more exact than its row comes out on the other side as the same class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from services.core.domain.errors import (
    Conflict,
    DomainError,
    FieldError,
    InvalidInput,
    Malformed,
    NotFound,
    PermissionDenied,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)

DOMAIN = "workflows.runr.dev"
DEFAULT_DETAILS_BYTES = 6 * 1024
MAX_DETAILS_BYTES = 256 * 1024
_MAX_MESSAGE = 1_000
_HINT_ROOM = 512
_DETAILS_KEY = "grpc-status-details-bin"
_PEER = "the service"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of error in all three worlds."""

    error: type[DomainError]
    kind: str
    code: grpc.StatusCode
    http: int
    title: str


# A subclass stands before its base.
TABLE = (
    Row(Malformed, "malformed", grpc.StatusCode.INVALID_ARGUMENT, 400, "Malformed request"),
    Row(TooLarge, "too_large", grpc.StatusCode.INVALID_ARGUMENT, 413, "Too large"),
    Row(InvalidInput, "invalid_input", grpc.StatusCode.INVALID_ARGUMENT, 422, "Invalid input"),
    Row(Unauthenticated, "unauthenticated", grpc.StatusCode.UNAUTHENTICATED, 401, "Not authenticated"),
    Row(PermissionDenied, "permission_denied", grpc.StatusCode.PERMISSION_DENIED, 403, "Permission denied"),
    Row(NotFound, "not_found", grpc.StatusCode.NOT_FOUND, 404, "Not found"),
    Row(Conflict, "conflict", grpc.StatusCode.FAILED_PRECONDITION, 409, "Conflict"),
    Row(RateLimited, "rate_limited", grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "Too many requests"),
    Row(Unavailable, "unavailable", grpc.StatusCode.UNAVAILABLE, 503, "Temporarily unavailable"),
    Row(Unsupported, "unsupported", grpc.StatusCode.UNIMPLEMENTED, 501, "Not supported"),
    Row(DomainError, "internal", grpc.StatusCode.INTERNAL, 500, "Internal error"),
)

_BY_KIND = {row.kind: row for row in TABLE}
# What a status without our details means: made by gRPC itself, or by a server that is not ours.
_BY_CODE = {
    grpc.StatusCode.INVALID_ARGUMENT: _BY_KIND["invalid_input"],
    grpc.StatusCode.OUT_OF_RANGE: _BY_KIND["invalid_input"],
    grpc.StatusCode.UNAUTHENTICATED: _BY_KIND["unauthenticated"],
    grpc.StatusCode.PERMISSION_DENIED: _BY_KIND["permission_denied"],
    grpc.StatusCode.NOT_FOUND: _BY_KIND["not_found"],
    grpc.StatusCode.FAILED_PRECONDITION: _BY_KIND["conflict"],
    grpc.StatusCode.ALREADY_EXISTS: _BY_KIND["conflict"],
    grpc.StatusCode.ABORTED: _BY_KIND["conflict"],
    grpc.StatusCode.UNIMPLEMENTED: _BY_KIND["unsupported"],
}
# How gRPC's own text begins when a call has not left this process.
_NEVER_SENT = (
    "connections to all backends failing",
    "failed to connect to all addresses",
    "errors resolving",
    "empty address list",
)
_ENDED = "{peer} ended the call; whether it was carried out is not known"
# `peer` is who was called.
_AWAY = {
    grpc.StatusCode.UNAVAILABLE: _ENDED,
    grpc.StatusCode.CANCELLED: _ENDED,
    grpc.StatusCode.DEADLINE_EXCEEDED: "{peer} did not answer in time; whether it was carried out is not known",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "{peer} is overloaded; try again",
}


def row_of(error: DomainError) -> Row:
    """The row of an error."""
    return next(row for row in TABLE if isinstance(error, row.error))


def internal_error(trace_id: str) -> DomainError:
    """What a caller sees of a fault of ours: nothing but the id under which the log has it."""
    return DomainError(f"internal error, trace {trace_id}", metadata={"trace_id": trace_id})


def to_status(error: DomainError, *, max_bytes: int = DEFAULT_DETAILS_BYTES) -> Status:
    """The google.rpc.Status of an error. Faults that do not fit into `max_bytes` are counted as `errors_omitted`."""
    row = row_of(error)
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=DOMAIN,
        metadata={**{key: _valid(value) for key, value in error.metadata.items()}, "kind": row.kind},
    )
    bad_request = error_details_pb2.BadRequest()
    left = max_bytes - info.ByteSize() - _MAX_MESSAGE - _HINT_ROOM
    for fault in error.errors:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_valid(fault.path), description=_valid(fault.message)
        )
        left -= violation.ByteSize() + 4
        if left < 0:
            info.metadata["errors_omitted"] = str(len(error.errors) - len(bad_request.field_violations))
            break
        bad_request.field_violations.append(violation)
    status = Status(code=row.code.value[0], message=_cut(error.message))
    status.details.append(_packed(info))
    if bad_request.field_violations:
        status.details.append(_packed(bad_request))
    return status


def to_grpc(error: DomainError, *, max_bytes: int = DEFAULT_DETAILS_BYTES) -> Any:
    """The same as a grpc.Status, for `context.abort_with_status`."""
    return rpc_status.to_status(to_status(error, max_bytes=max_bytes))


def from_status(status: Status) -> DomainError:
    """The error behind a google.rpc.Status."""
    code = _code_of(status.code)
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            detail.Unpack(bad_request)
    row = _BY_KIND.get(info.metadata.get("kind", "")) if info.domain == DOMAIN else None
    if row is None:
        return _foreign(code, status.message, _PEER)
    errors = [FieldError(violation.field, violation.description) for violation in bad_request.field_violations]
    metadata = {key: value for key, value in info.metadata.items() if key != "kind"}
    return row.error(status.message, reason=info.reason or None, errors=errors, metadata=metadata)


def from_rpc_error(error: grpc.aio.AioRpcError, *, peer: str = _PEER) -> DomainError:
    """The error behind a failed call of ours; `peer` is who was called, for texts that begin with it."""
    try:
        status = rpc_status.from_call(_CallView(error))
    except ValueError:
        status = None
    if status is not None:
        return from_status(status)
    if was_never_sent(error):
        return Unavailable(f"{peer} cannot be reached; try again")
    return _foreign(error.code(), error.details() or "", peer)


def was_never_sent(error: grpc.aio.AioRpcError) -> bool:
    """Whether nobody has seen a failed call of ours, for certain: there was no connection that it could travel on."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and (error.details() or "").startswith(_NEVER_SENT)


def has_broken_off(error: grpc.aio.AioRpcError) -> bool:
    """Whether a call failed without an answer of its server: the connection has gone, or the server has ended."""
    answered = any(key == _DETAILS_KEY for key, _ in error.trailing_metadata() or ())
    return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) and not answered


class _CallView:
    """What `rpc_status.from_call` reads, with trailing metadata as pairs."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self._error = error

    def code(self) -> grpc.StatusCode:
        return self._error.code()

    def details(self) -> Any:
        return self._error.details()

    def trailing_metadata(self) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self._error.trailing_metadata() or ()]


def _foreign(code: grpc.StatusCode, details: str, peer: str) -> DomainError:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return TooLarge(details)
    if code in _AWAY:
        return Unavailable(_AWAY[code].format(peer=peer), reason=code.name)
    row = _BY_CODE.get(code)
    if row is None:
        return DomainError(f"{code.name}: {details}")
    return row.error(details or row.title)


def _code_of(number: int) -> grpc.StatusCode:
    return next((code for code in grpc.StatusCode if code.value[0] == number), grpc.StatusCode.UNKNOWN)


def _packed(message: Any) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def _valid(text: str) -> str:
    """The text without lone surrogates, which no proto string can hold."""
    return text.encode(errors="replace").decode()


def _cut(text: str) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MAX_MESSAGE:
        return encoded.decode()
    return encoded[: _MAX_MESSAGE - 3].decode(errors="ignore") + "…"
