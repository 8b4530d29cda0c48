"""The gRPC server of a service, as a component of its process."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME, enable_server_reflection

from services.core.rpc.broken_calls import quiet_broken_calls
from services.core.rpc.call_context import Authenticator, Once
from services.core.rpc.call_meter import CallMeter
from services.core.rpc.interceptor import CallInterceptor
from services.core.rpc.status import MAX_DETAILS_BYTES
from services.core.runtime.lifecycle import Component
from services.core.runtime.metrics import Metrics
from services.core.runtime.parse import Address
from services.core.runtime.telemetry import Telemetry

# 100 events of 256 KiB and what stands around them; rulings allow 24 MiB for everything else.
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_MAX_CALLS = 10_000
_LEAVE_S = 0.2

Registration = tuple[Callable[[Any, Any], None], Any]
"""A generated `add_<Service>Servicer_to_server` and the servicer to add with it."""

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_DETAILS_BYTES + 64 * 1024),
    ("grpc.absolute_max_metadata_size", MAX_DETAILS_BYTES + 128 * 1024),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)


class RpcServer(Component):
    """Serves `services` on `address`; with port 0 the system chooses, see `address` after `start`.

    `drain` turns gRPC health to NOT_SERVING, leaves callers `leave_s` to hear of it and go elsewhere, refuses new calls
    and gives the ones in progress `grace_s` to end.
    Without `credentials` (TLS) only a loopback address is served (engine section 10), unless `plaintext` says that the
    network between the services is trusted. `name` tells several servers in one process apart. `shared`: processes of
    one parent share the address, and the system spreads connections over them. Without `once` writes that their callers
    name are refused.
    """

    def __init__(
        self,
        address: Address,
        services: Sequence[Registration],
        *,
        authenticator: Authenticator,
        telemetry: Telemetry,
        grace_s: float = 10.0,
        leave_s: float = _LEAVE_S,
        credentials: grpc.ServerCredentials | None = None,
        plaintext: bool = False,
        name: str = "grpc",
        shared: bool = False,
        metrics: Metrics | None = None,
        once: Once | None = None,
    ) -> None:
        if credentials is None and not plaintext and not is_loopback(address.host):
            raise ValueError(f"gRPC on {address} needs TLS: only a loopback address is served without")
        self.name = name
        self._address = address
        self._services = tuple(services)
        self._interceptor = CallInterceptor(authenticator, telemetry, CallMeter(metrics), once)
        self._grace_s = grace_s
        self._leave_s = leave_s
        # Unless it is meant, a second process would share the port in silence and get half of the calls.
        self._options = (*_OPTIONS, ("grpc.so_reuseport", int(shared)))
        self._credentials = credentials
        self._health = health.aio.HealthServicer()
        self._server: Any = None

    @property
    def address(self) -> Address:
        """Where it listens; after `start` with the real port."""
        return self._address

    async def start(self) -> None:
        """Listens and serves. Raises OSError when the address cannot be had."""
        quiet_broken_calls()
        server = grpc.aio.server(
            interceptors=(self._interceptor,), options=self._options, maximum_concurrent_rpcs=_MAX_CALLS
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        served = _Served(server)
        for add, servicer in self._services:
            add(servicer, served)
        # Tools learn the protos from the server itself, with a token of any kind.
        enable_server_reflection((*served.names, health.SERVICE_NAME, SERVICE_NAME), server)
        self._address = Address(self._address.host, self._bind(server))
        await server.start()
        self._server = server
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Ends what is in progress; calls that outlast the grace are cut off."""
        await self._health.enter_graceful_shutdown()
        if self._server is not None:
            await asyncio.sleep(self._leave_s)
            await self._server.stop(self._grace_s)

    async def stop(self) -> None:
        """Closes everything at once; a second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    def _bind(self, server: Any) -> int:
        try:
            if self._credentials is not None:
                return int(server.add_secure_port(str(self._address), self._credentials))
            return int(server.add_insecure_port(str(self._address)))
        except RuntimeError as error:
            # What gRPC says is no more than that it could not; its own reason goes to stderr.
            reason = "it is taken, or not an address of this machine"
            raise OSError(f"cannot listen on {self._address}: {reason}; RUNR_GRPC_ADDR chooses another") from error


class _Served:
    """A server as generated code adds services to it; remembers what they are called."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.names: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """The services' methods by their full names."""
        self.names += [handler.service_name() for handler in handlers]
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The same, as newer code does besides."""
        self._server.add_registered_method_handlers(service, handlers)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and reachable from nowhere else."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
