"""Mutual TLS between the services: each proves with its certificate that it belongs to the installation."""

from __future__ import annotations

from pathlib import Path

import grpc

from services.core.runtime.settings import RpcSecuritySettings


def server_credentials(settings: RpcSecuritySettings) -> grpc.ServerCredentials | None:
    """What a gRPC server shows and demands; None without TLS. Reads the files once."""
    if not settings.certificate:
        return None
    pair = (Path(settings.key).read_bytes(), Path(settings.certificate).read_bytes())
    return grpc.ssl_server_credentials(
        [pair], root_certificates=Path(settings.authority).read_bytes(), require_client_auth=True
    )


def channel_credentials(settings: RpcSecuritySettings) -> grpc.ChannelCredentials | None:
    """What a gRPC client shows and demands; None without TLS. Reads the files once."""
    if not settings.certificate:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=Path(settings.authority).read_bytes(),
        private_key=Path(settings.key).read_bytes(),
        certificate_chain=Path(settings.certificate).read_bytes(),
    )
