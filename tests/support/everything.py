"""Every method of the API, with requests that a test fills in: for what must hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format, message_factory
from runr.workflows.v1 import (
    access_service_pb2,
    event_service_pb2,
    function_service_pb2,
    options_pb2,
    run_service_pb2,
    schedule_service_pb2,
    worker_service_pb2,
    workflow_service_pb2,
)

from services.core.domain.errors import DomainError
from services.core.rpc.authorize import permission_of
from services.core.rpc.channel import call_metadata, open_channel
from services.core.rpc.status import from_rpc_error, row_of
from services.core.runtime.parse import Address
from tests.support.stack import Stack

_PARTS = {
    "ingest": (event_service_pb2, run_service_pb2),
    "scheduler": (access_service_pb2, workflow_service_pb2, schedule_service_pb2),
    "executor": (function_service_pb2, worker_service_pb2),
}


@dataclass(frozen=True)
class Method:
    """A method; `rpc` is its full name, `server` the service that has it."""

    rpc: str
    server: str
    descriptor: Any

    @property
    def name(self) -> str:
        """Its name within its service."""
        return str(self.descriptor.name)

    @property
    def permission(self) -> int:
        """The permission that it declares."""
        return permission_of(self.rpc)

    @property
    def is_asked(self) -> bool:
        """Whether one request is all that it takes."""
        return not self.descriptor.client_streaming

    def request(self, fields: Mapping[str, Any]) -> Any:
        """A request with those of the fields, as JSON has them, that it knows."""
        made = message_factory.GetMessageClass(self.descriptor.input_type)()
        return json_format.ParseDict(dict(fields), made, ignore_unknown_fields=True)


@dataclass(frozen=True)
class Outcome:
    """What became of a call: `kind` is `ok` or a row of the table of errors."""

    kind: str
    reason: str = ""
    message: str = ""


def methods() -> list[Method]:
    """All methods that services have, in the order of the protos."""
    return [
        Method(f"/{service.full_name}/{method.name}", server, method)
        for server, modules in _PARTS.items()
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def is_open(method: Method) -> bool:
    """Whether no token is asked for: what the request holds is the credential."""
    return method.permission in (
        options_pb2.PERMISSION_PUBLIC,
        options_pb2.PERMISSION_PER_ITEM,
        options_pb2.PERMISSION_SIGNED,
    )


class Line:
    """Channels to all services of a stack."""

    def __init__(self, stack: Stack) -> None:
        self._channels = {}
        for server in _PARTS:
            host, _, port = stack.address(server).rpartition(":")
            self._channels[server] = open_channel(Address(host, int(port)))

    async def close(self) -> None:
        """Let go of them."""
        for channel in self._channels.values():
            await channel.close()

    async def ask(self, method: Method, request: Any, token: str | None, *, tenant: str | None = None) -> Outcome:
        """One call; of a stream of answers the first."""
        answer = message_factory.GetMessageClass(method.descriptor.output_type)
        form = "unary_stream" if method.descriptor.server_streaming else "unary_unary"
        call = getattr(self._channels[method.server], form)(
            method.rpc,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )(request, metadata=call_metadata(token, tenant=tenant), timeout=30)
        try:
            if method.descriptor.server_streaming:
                await call.read()
                call.cancel()
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return outcome_of(from_rpc_error(error))
        return Outcome("ok")


def outcome_of(error: DomainError) -> Outcome:
    """The outcome of a call that was refused."""
    return Outcome(row_of(error).kind, error.reason, error.message)
