"""Channels to a service: keepalive, sizes, TLS, and the credentials of every call."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from runr_client.credentials import Credentials, aio_interceptors, interceptors

_MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_MAX_METADATA_BYTES = 320 * 1024
_OPTIONS = (
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * _MAX_METADATA_BYTES),
    # Calls are spread over all replicas that the name has; one that drains is called no more, before it refuses.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}'),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A peer that has vanished without a word is given up after 30 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True)
class Tls:
    """PEM texts: the authority of the server's certificate (None: those that the system knows), and for mutual TLS,
    which the services ask for, a certificate and its key. `server_name` is what the server's certificate is for, where
    that is not the host of its address.
    """

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None

    @classmethod
    def of(
        cls,
        *,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        server_name: str | None = None,
    ) -> Tls:
        """From files. Raises OSError."""
        read = [None if path is None else Path(path).read_bytes() for path in (ca, certificate, key)]
        return cls(read[0], read[1], read[2], server_name)


def aio_channel(
    address: str,
    *,
    token: str | Callable[[], str],
    tenant: str | None = None,
    tls: Tls | None = None,
    plaintext: bool = False,
    timeout_s: float = 30.0,
) -> Any:
    """A `grpc.aio.Channel` to `host:port`, for stubs whose calls are awaited. An async context manager.

    Without `tls` only this machine is called, unless `plaintext` says that the network itself is trusted, as in a mesh:
    the token is not shown to others. `timeout_s` is the deadline of calls that have none. Raises ValueError.
    """
    known = aio_interceptors(Credentials(token, tenant, timeout_s))
    if tls is None:
        _check_plaintext(address, plaintext)
        return grpc.aio.insecure_channel(address, options=_OPTIONS, interceptors=known)
    return grpc.aio.secure_channel(address, _ssl(tls), options=_named(tls), interceptors=known)


def channel(
    address: str,
    *,
    token: str | Callable[[], str],
    tenant: str | None = None,
    tls: Tls | None = None,
    plaintext: bool = False,
    timeout_s: float = 30.0,
) -> Any:
    """The same as a `grpc.Channel`, for calls that block. A context manager."""
    known = interceptors(Credentials(token, tenant, timeout_s))
    if tls is None:
        _check_plaintext(address, plaintext)
        made = grpc.insecure_channel(address, options=_OPTIONS)
    else:
        made = grpc.secure_channel(address, _ssl(tls), options=_named(tls))
    return grpc.intercept_channel(made, *known)


def _ssl(tls: Tls) -> Any:
    if (tls.certificate is None) != (tls.key is None):
        raise ValueError("a certificate and its key belong together")
    return grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)


def _named(tls: Tls) -> Any:
    if tls.server_name is None:
        return _OPTIONS
    return (*_OPTIONS, ("grpc.ssl_target_name_override", tls.server_name))


def _check_plaintext(address: str, plaintext: bool) -> None:
    if plaintext or address.startswith("unix:"):
        return
    host = address.rpartition(":")[0].strip("[]")
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    if not is_here:
        raise ValueError(f"{address} is called with TLS, or with plaintext=True where the network is trusted")
