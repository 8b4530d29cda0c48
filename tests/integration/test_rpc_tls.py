"""Mutual TLS between services: the right certificate is served, a stranger's is not."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import runr_client
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from runr.workflows.v1 import access_service_pb2, access_service_pb2_grpc

from services.core.rpc.channel import call_metadata, is_serving, open_channel
from services.core.rpc.credentials import channel_credentials, server_credentials
from services.core.rpc.server import RpcServer
from services.core.runtime.health import Health
from services.core.runtime.parse import Address
from services.core.runtime.settings import RpcSecuritySettings, TelemetrySettings
from services.core.runtime.telemetry import start_telemetry
from services.gateway.backends import Backends
from tests.support.grpc_backend import ADMIN, VIEWER, TwoTokens


@dataclass(frozen=True)
class Authority:
    """Who signs certificates; its own is in `file`."""

    name: x509.Name
    key: Any
    file: Path


def make_authority(folder: Path) -> RpcSecuritySettings:
    """A new authority and one certificate of it for localhost."""
    return certify(found(folder), "localhost")


def found(folder: Path) -> Authority:
    """A new authority, whose files are in the folder."""
    folder.mkdir()
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
    authority = certificate(
        authority_name, authority_name, authority_key.public_key(), authority_key, is_authority=True
    )
    (folder / "ca").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    return Authority(authority_name, authority_key, folder / "ca")


def certify(authority: Authority, host: str, *, days: int = 1) -> RpcSecuritySettings:
    """A certificate for a host, which is valid for so many days from now on, or was until so many days ago."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    leaf = certificate(name, authority.name, key.public_key(), authority.key, is_authority=False, host=host, days=days)
    file = authority.file.parent / f"{host}.{days}"
    file.with_suffix(".cert").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    file.with_suffix(".key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return RpcSecuritySettings(
        certificate=str(file.with_suffix(".cert")),
        key=str(file.with_suffix(".key")),
        authority=str(authority.file),
    )


def certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: Any,
    signer: Any,
    *,
    is_authority: bool,
    host: str = "localhost",
    days: int = 1,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(signer, hashes.SHA256())
    )


async def test_the_installations_certificate_is_served_and_a_strangers_is_not(tmp_path: Path) -> None:
    ours, strangers = make_authority(tmp_path / "ours"), make_authority(tmp_path / "strangers")
    server = RpcServer(
        Address("127.0.0.1", 0),
        [],
        authenticator=None,  # type: ignore[arg-type]  # the health service asks for no token
        telemetry=start_telemetry("ingest", TelemetrySettings()),
        credentials=server_credentials(ours),
    )
    await server.start()
    try:
        address = Address("localhost", server.address.port)
        mixed = RpcSecuritySettings(certificate=strangers.certificate, key=strangers.key, authority=ours.authority)
        async with open_channel(address, credentials=channel_credentials(ours)) as channel:
            assert await is_serving(channel, timeout_s=5)
        for wrong in (strangers, mixed):
            async with open_channel(address, credentials=channel_credentials(wrong)) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await is_serving(channel, timeout_s=5)
        async with open_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await is_serving(channel, timeout_s=5)
        assert await gateway_reaches(address, ours) == "ok"
        assert await gateway_reaches(address, RpcSecuritySettings()) == "cannot be reached"
    finally:
        await server.stop()


async def gateway_reaches(address: Address, settings: RpcSecuritySettings) -> str:
    """What the gateway's readiness says of ingest."""
    health = Health()
    peers = dict.fromkeys(("ingest", "scheduler", "executor"), address)
    backends = Backends(peers, health, credentials=channel_credentials(settings))
    await backends.start()
    try:
        return (await health.readiness())[1]["ingest"]
    finally:
        await backends.stop()


def test_without_files_there_is_no_tls() -> None:
    assert server_credentials(RpcSecuritySettings()) is None
    assert channel_credentials(RpcSecuritySettings()) is None


@asynccontextmanager
async def listening(security: RpcSecuritySettings) -> AsyncIterator[Address]:
    """A server of the access methods that shows and demands certificates; it knows two tokens."""
    server = RpcServer(
        Address("127.0.0.1", 0),
        [
            (
                access_service_pb2_grpc.add_AccessServiceServicer_to_server,
                access_service_pb2_grpc.AccessServiceServicer(),
            )
        ],
        authenticator=TwoTokens(),
        telemetry=start_telemetry("scheduler", TelemetrySettings()),
        credentials=server_credentials(security),
    )
    await server.start()
    try:
        yield Address("localhost", server.address.port)
    finally:
        await server.stop()


async def test_a_certificate_that_is_old_or_for_another_host_is_none(tmp_path: Path) -> None:
    ours = found(tmp_path / "ours")
    good = certify(ours, "localhost")
    for wrong in (certify(ours, "elsewhere"), certify(ours, "localhost", days=-1)):
        async with listening(wrong) as address, open_channel(address, credentials=channel_credentials(good)) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await is_serving(channel, timeout_s=5)
    old = certify(ours, "localhost", days=-2)
    async with listening(good) as address, open_channel(address, credentials=channel_credentials(old)) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await is_serving(channel, timeout_s=5)


async def test_a_certificate_alone_gives_no_rights(tmp_path: Path) -> None:
    ours = make_authority(tmp_path / "ours")
    async with listening(ours) as address, open_channel(address, credentials=channel_credentials(ours)) as channel:
        stub = access_service_pb2_grpc.AccessServiceStub(channel)
        codes = []
        for token in (None, "wrong", VIEWER, ADMIN):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ListTokens(access_service_pb2.ListTokensRequest(), metadata=call_metadata(token), timeout=10)
            codes.append(refused.value.code())
    assert codes == [
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,  # the servicer, which has been reached
    ]


async def test_the_client_of_internal_callers_speaks_mutual_tls(tmp_path: Path) -> None:
    ours, strangers = make_authority(tmp_path / "ours"), make_authority(tmp_path / "strangers")
    codes = []
    async with listening(ours) as address:
        here = f"127.0.0.1:{address.port}"
        for settings, name in ((ours, "localhost"), (ours, "elsewhere"), (strangers, "localhost")):
            tls = runr_client.Tls.of(
                ca=settings.authority, certificate=settings.certificate, key=settings.key, server_name=name
            )
            assert b"PRIVATE KEY" in (tls.key or b"")
            assert "PRIVATE KEY" not in repr(tls)
            async with runr_client.aio_channel(here, token=ADMIN, tls=tls) as channel:
                stub = access_service_pb2_grpc.AccessServiceStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    await stub.ListTokens(access_service_pb2.ListTokensRequest(), timeout=10)
                codes.append(ended.value.code())
    assert codes[0] is grpc.StatusCode.UNIMPLEMENTED  # the servicer, which has been reached
    assert codes[1:] == [grpc.StatusCode.UNAVAILABLE] * 2
