"""Mutual TLS between services: the right certificate is served, a stranger's is not."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.core.rpc.channel import is_serving, open_channel
from services.core.rpc.credentials import channel_credentials, server_credentials
from services.core.rpc.server import RpcServer
from services.core.runtime.health import Health
from services.core.runtime.parse import Address
from services.core.runtime.settings import RpcSecuritySettings, TelemetrySettings
from services.core.runtime.telemetry import start_telemetry
from services.gateway.backends import Backends


def make_authority(folder: Path) -> RpcSecuritySettings:
    """A new authority and one certificate of it for localhost."""
    folder.mkdir()
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
    authority = certificate(
        authority_name, authority_name, authority_key.public_key(), authority_key, is_authority=True
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    leaf = certificate(name, authority_name, key.public_key(), authority_key, is_authority=False)
    files = {
        "ca": authority.public_bytes(serialization.Encoding.PEM),
        "cert": leaf.public_bytes(serialization.Encoding.PEM),
    }
    files["key"] = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return RpcSecuritySettings(certificate=str(folder / "cert"), key=str(folder / "key"), authority=str(folder / "ca"))


def certificate(
    subject: x509.Name, issuer: x509.Name, key: Any, signer: Any, *, is_authority: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
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
