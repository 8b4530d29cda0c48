"""The gRPC channel to another service: found again within a second after the peer was killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.core.rpc.interceptor import DETAILS_LIMIT
from services.core.rpc.named_writes import WRITE_NAME
from services.core.rpc.server import MAX_MESSAGE_BYTES
from services.core.rpc.status import MAX_DETAILS_BYTES
from services.core.runtime.parse import Address
from services.core.runtime.traceparent import headers

OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_DETAILS_BYTES + 64 * 1024),
    ("grpc.absolute_max_metadata_size", MAX_DETAILS_BYTES + 128 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Calls are spread over all addresses that the name has: the replicas of the service. One that says that it drains
    # is called no more, before it refuses: what is refused might have been carried out, for all that a caller knows.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}'),
    # A peer that vanished without a word (machine gone, process stopped) is given up after 15 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Connections of one channel are its own: another channel's backoff must not delay it.
    ("grpc.use_local_subchannel_pool", 1),
    # Only gRPC's transparent retry, of calls that no server has seen: anything else might start a run twice.
    ("grpc.enable_retries", 1),
)


def open_channel(
    address: Address, *, credentials: grpc.ChannelCredentials | None = None, name: str | None = None
) -> Any:
    """A `grpc.aio.Channel` to `address`. Connects on the first call; a call fails at once while the peer is away.

    `name` is what the certificate must be for, where that is not the address's host.
    """
    if credentials is None:
        return grpc.aio.insecure_channel(str(address), options=OPTIONS)
    options = OPTIONS if name is None else (*OPTIONS, ("grpc.ssl_target_name_override", name))
    return grpc.aio.secure_channel(str(address), credentials, options=options)


def call_metadata(
    token: str | None, *, tenant: str | None = None, trace: str | None = None, name: str | None = None
) -> tuple[tuple[str, str], ...]:
    """The metadata of a call: credentials, trace, that long error details are welcome, and the name of a write that is
    to be carried out once.
    """
    pairs: Mapping[str, str | None] = {
        "authorization": f"Bearer {token}" if token else None,
        "x-tenant-id": tenant,
        **headers(trace),
        DETAILS_LIMIT: str(MAX_DETAILS_BYTES),
        WRITE_NAME: name,
    }
    return tuple((key, value) for key, value in pairs.items() if value)


async def is_serving(channel: Any, *, timeout_s: float = 1.0) -> bool:
    """Whether the service behind a channel says that it takes calls. Raises grpc.aio.AioRpcError when it cannot say."""
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
