"""What a failed call says: the status, and the details that travel with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True)
class FieldFault:
    """One fault of the input; `path` is like `events[3].name`, empty for all of it."""

    path: str
    message: str


@dataclass(frozen=True)
class Fault:
    """`kind` is the row of the errors' table ("not_found", "invalid_input", "unavailable", …), `reason` is more exact
    ("RUN_ENDED"), and both are empty when it was not the service that spoke. `fields` are the faults of the input,
    `metadata` what else is told.
    """

    code: Any
    message: str
    kind: str = ""
    reason: str = ""
    fields: tuple[FieldFault, ...] = ()
    metadata: Mapping[str, str] | None = None
    trace_id: str | None = None

    @property
    def may_pass(self) -> bool:
        """Whether the same call may go better later. A write is then to be asked again under the same name only."""
        return self.code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.ABORTED,
        )

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" + (f" ({self.reason})" if self.reason else "")


def fault_of(error: grpc.RpcError) -> Fault:
    """What a failed call says, of `grpc` and of `grpc.aio` alike. Details that are not ours are passed over."""
    spoken: Any = error
    code, message = spoken.code(), spoken.details() or ""
    kind = reason = ""
    metadata: dict[str, str] = {}
    fields: tuple[FieldFault, ...] = ()
    for detail in _details(spoken.trailing_metadata()):
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            metadata = dict(info.metadata)
            kind, reason = metadata.pop("kind", ""), info.reason
        elif detail.Unpack(bad):
            fields = tuple(FieldFault(each.field, each.description) for each in bad.field_violations)
    return Fault(code, message, kind, reason, fields, metadata, metadata.get("trace_id"))


def _details(trailing: Any) -> list[Any]:
    for name, value in trailing or ():
        if name == _DETAILS:
            try:
                return list(status_pb2.Status.FromString(value).details)
            except Exception:  # of protobuf, whose error has no public home
                return []
    return []
