"""The services behind the gateway: one channel each, and a stub for every method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from runr.workflows.v1 import (
    access_service_pb2_grpc,
    event_service_pb2_grpc,
    function_service_pb2_grpc,
    run_service_pb2_grpc,
    schedule_service_pb2_grpc,
    workflow_service_pb2_grpc,
)

from services.core.rpc.channel import is_serving, open_channel
from services.core.rpc.status import from_rpc_error
from services.core.runtime.health import Health, NotReady
from services.core.runtime.lifecycle import Component
from services.core.runtime.parse import Address

Metadata = tuple[tuple[str, str], ...]

_STUBS: Mapping[str, tuple[str, Any]] = {
    "runr.workflows.v1.EventService": ("ingest", event_service_pb2_grpc.EventServiceStub),
    "runr.workflows.v1.RunService": ("ingest", run_service_pb2_grpc.RunServiceStub),
    "runr.workflows.v1.WorkflowService": ("scheduler", workflow_service_pb2_grpc.WorkflowServiceStub),
    "runr.workflows.v1.ScheduleService": ("scheduler", schedule_service_pb2_grpc.ScheduleServiceStub),
    "runr.workflows.v1.AccessService": ("scheduler", access_service_pb2_grpc.AccessServiceStub),
    "runr.workflows.v1.FunctionService": ("executor", function_service_pb2_grpc.FunctionServiceStub),
}


class Backends(Component):
    """Channels to `addresses` (service name → address), opened by `start`; with TLS where there are `credentials`."""

    name = "backends"

    def __init__(
        self, addresses: Mapping[str, Address], health: Health, *, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        self._addresses = addresses
        self._credentials = credentials
        self._channels: dict[str, Any] = {}
        self._stubs: dict[str, Any] = {}
        # Only ingest: without it nothing can be done, while a gateway that leaves its balancer because one of the other
        # two is away would take everything down with it.
        health.register("ingest", self._check_ingest)

    async def start(self) -> None:
        """Opens the channels; connects on the first call."""
        self._channels = {
            name: open_channel(address, credentials=self._credentials) for name, address in self._addresses.items()
        }
        self._stubs = {name: stub(self._channels[peer]) for name, (peer, stub) in _STUBS.items()}

    async def drain(self) -> None:
        """Nothing: the requests in progress need the channels."""

    async def stop(self) -> None:
        """Closes the channels; a second call does nothing."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def call(self, rpc: str, request: Any, *, metadata: Metadata, timeout_s: float) -> Any:
        """The response of a unary method. Raises the DomainError behind its status."""
        service, _, method = rpc.removeprefix("/").partition("/")
        try:
            return await getattr(self._stubs[service], method)(request, metadata=metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, peer=_STUBS[service][0]) from error

    async def _check_ingest(self) -> None:
        try:
            serving = await is_serving(self._channels["ingest"])
        except (grpc.aio.AioRpcError, KeyError):
            raise NotReady("cannot be reached") from None
        if not serving:
            raise NotReady("drains")
