"""Where the engine is, and how a worker may speak to it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

URL_VARIABLE = "RUNR_WORKER_URL"
CA_VARIABLE = "RUNR_WORKER_TLS_CA"
CERT_VARIABLE = "RUNR_WORKER_TLS_CERT"
KEY_VARIABLE = "RUNR_WORKER_TLS_KEY"
PLAINTEXT_VARIABLE = "RUNR_WORKER_PLAINTEXT"

_FORMS = "executor.example.com:7103, https://executor.example.com:7103 or, on this machine, 127.0.0.1:7103"

Pem = str | os.PathLike[str] | bytes
"""The path of a PEM file, or what is in it."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Contents of PEM files: the authority of the engine's certificate (None: the system's), and our certificate."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """An executor. Without `tls` the connection is not encrypted."""

    host: str
    port: int
    tls: Tls | None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def target(
    url: str | None,
    *,
    ca: Pem | None,
    certificate: Pem | None,
    key: Pem | None,
    plaintext: bool | None,
    environ: Mapping[str, str],
) -> Target:
    """The target of a connection; what is None comes from the environment. Raises ValueError naming what is wrong."""
    text = url if url is not None else environ.get(URL_VARIABLE, "")
    if not text:
        raise ValueError(f"no address of an engine: give url=…, or set {URL_VARIABLE}, like {_FORMS}")
    scheme, host, port = _parse(text)
    if plaintext is None:
        plaintext = environ.get(PLAINTEXT_VARIABLE, "").lower() in ("true", "1")
    tls = Tls(
        _read(ca, environ.get(CA_VARIABLE)),
        _read(certificate, environ.get(CERT_VARIABLE)),
        _read(key, environ.get(KEY_VARIABLE)),
    )
    if (tls.certificate is None) != (tls.key is None):
        raise ValueError(f"a certificate needs its key, and the key its certificate ({CERT_VARIABLE}, {KEY_VARIABLE})")
    wants_tls = scheme == "https" or tls != Tls()
    if scheme == "http" and tls != Tls():
        raise ValueError(f"{text!r} says that the connection is not encrypted, but certificates are given")
    if wants_tls or not (plaintext or _is_loopback(host)):
        if scheme == "http":
            raise ValueError(
                f"{text!r} would not be encrypted, and the address is not loopback. Use https://, or say that the "
                f"network is trusted with plaintext=True or {PLAINTEXT_VARIABLE}=true"
            )
        return Target(host, port, tls)
    return Target(host, port, None)


def _parse(text: str) -> tuple[str, str, int]:
    """Scheme (http, https or none), host and port."""
    parts = urlsplit(text if "://" in text else f"//{text}")
    try:
        port = parts.port
    except ValueError:
        port = None
    rest = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
    if parts.scheme not in ("", "http", "https") or not parts.hostname or any(rest) or not port:
        raise ValueError(f"{text!r} is no address of an engine: host:port, like {_FORMS}")
    return parts.scheme, parts.hostname, port


def _read(given: Pem | None, variable: str | None) -> bytes | None:
    if isinstance(given, bytes):
        return given
    path = given if given is not None else variable
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"the file {os.fspath(path)} cannot be read: {error.strerror or error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
