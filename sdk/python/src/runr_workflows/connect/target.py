"""Where the engine is, and how a worker may speak to it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import SettingsError
from ..shown import shown, shown_url

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
    """The target of a connection; what is None comes from the environment. Raises SettingsError."""
    text = url if url is not None else environ.get(URL_VARIABLE, "")
    if not text:
        raise SettingsError(f"no address of an engine: set {URL_VARIABLE}, or give wf.connect(url), like {_FORMS}")
    scheme, host, port = _parse(text)
    if plaintext is None:
        plaintext = _flag(PLAINTEXT_VARIABLE, environ.get(PLAINTEXT_VARIABLE, ""))
    tls = Tls(
        _read("tls_ca", CA_VARIABLE, ca, environ),
        _read("tls_cert", CERT_VARIABLE, certificate, environ),
        _read("tls_key", KEY_VARIABLE, key, environ),
    )
    if (tls.certificate is None) != (tls.key is None):
        raise SettingsError(
            f"{CERT_VARIABLE}, {KEY_VARIABLE}: a certificate needs its key, and the key its certificate"
        )
    wants_tls = scheme == "https" or tls != Tls()
    if scheme == "http" and tls != Tls():
        raise SettingsError(
            f"url ({URL_VARIABLE}): {text!r} says that the connection is not encrypted, but certificates are given"
        )
    if wants_tls or not (plaintext or _is_loopback(host)):
        if scheme == "http":
            raise SettingsError(
                f"url ({URL_VARIABLE}): {text!r} would not be encrypted, and the address is not loopback. Use "
                f"https://, or say that the network is trusted with plaintext=True or {PLAINTEXT_VARIABLE}=true"
            )
        return Target(host, port, tls)
    return Target(host, port, None)


def _parse(text: object) -> tuple[str, str, int]:
    """Scheme (http, https or none), host and port."""
    try:
        if not isinstance(text, str):
            raise ValueError
        parts = urlsplit(text if "://" in text else f"//{text}")
        port = parts.port
    except ValueError:
        port = None
    if not port:
        raise _no_address(text)
    rest = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
    if parts.scheme not in ("", "http", "https") or not parts.hostname or any(rest):
        raise _no_address(text)
    return parts.scheme, parts.hostname, port


def _no_address(text: object) -> SettingsError:
    return SettingsError(
        f"url ({URL_VARIABLE}): {shown_url(text)} is no address of an engine: host:port, like {_FORMS}"
    )


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "1", "false", "0", ""):
        raise SettingsError(f"{name}: true or false, not {shown(text)}")
    return text.lower() in ("true", "1")


def _read(name: str, variable: str, given: Pem | None, environ: Mapping[str, str]) -> bytes | None:
    path = given if given is not None else environ.get(variable)
    if not path:
        return None
    setting = f"{name} ({variable})"
    if isinstance(path, bytes):
        pem, where = path, "what is given"
    elif isinstance(path, str) and "-----BEGIN" in path:
        raise SettingsError(f"{setting}: the path of a PEM file, or bytes, not a text of what is in it")
    else:
        try:
            pem, where = Path(path).read_bytes(), os.fspath(path)
        except (OSError, TypeError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise SettingsError(f"{setting}: the file {shown(path, 200)} cannot be read: {why}") from None
    if b"-----BEGIN " not in pem:
        raise SettingsError(f"{setting}: {where} holds no PEM, which begins with -----BEGIN")
    return pem


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
