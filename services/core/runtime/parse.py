"""Parsers of settings: text in, value out, or a ValueError that says what is allowed."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)?")
_DURATION_MS = {"ms": 1.0, "s": 1_000.0, None: 1_000.0, "m": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
_SIZE = re.compile(r"(\d{1,12})(B|KiB|MiB|GiB)?")
_SIZE_BYTES = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a TCP port; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def text(raw: str) -> str:
    """Any text."""
    return raw


def boolean(raw: str) -> bool:
    """true/false, yes/no, on/off, 1/0, in any case."""
    lowered = raw.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("must be true or false")


def integer(low: int, high: int) -> Callable[[str], int]:
    """A whole number within [low, high]."""

    def parse(raw: str) -> int:
        try:
            value = int(raw)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return parse


def _milliseconds(raw: str) -> float | None:
    match = _DURATION.fullmatch(raw)
    return float(match[1]) * _DURATION_MS[match[2]] if match else None


def seconds(low: float, high: float) -> Callable[[str], float]:
    """A duration within [low, high] seconds: a number of seconds, or with a unit ms, s, m, h or d."""

    def parse(raw: str) -> float:
        value = _milliseconds(raw)
        if value is None or not low * 1_000 <= value <= high * 1_000:
            raise ValueError(f"must be a duration from {low:g} s to {high:g} s, like 10s, 500ms, 5m, 2h or 7d")
        return value / 1_000

    return parse


def milliseconds(low: int, high: int) -> Callable[[str], int]:
    """A duration as whole milliseconds within [low, high]; written like `seconds`."""

    def parse(raw: str) -> int:
        value = _milliseconds(raw)
        if value is None or not low <= value <= high:
            raise ValueError(f"must be a duration from {low} ms to {high} ms, like 10s, 500ms, 5m, 2h or 7d")
        return round(value)

    return parse


def size(low: int, high: int) -> Callable[[str], int]:
    """A number of bytes within [low, high], plain or with B, KiB, MiB or GiB."""

    def parse(raw: str) -> int:
        match = _SIZE.fullmatch(raw)
        value = int(match[1]) * _SIZE_BYTES[match[2]] if match else low - 1
        if not low <= value <= high:
            raise ValueError(f"must be a size from {low} to {high} bytes, like 262144, 256KiB or 1MiB")
        return value

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    """One of the given words."""

    def parse(raw: str) -> str:
        if raw not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return raw

    return parse


def address(raw: str) -> Address:
    """`host:port`, with IPv6 hosts in brackets."""
    host, colon, port = raw.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    if not colon or not name or (":" in name and not bracketed) or not port.isascii() or not port.isdigit():
        raise ValueError("must be host:port, like 127.0.0.1:8080 or [::1]:8080")
    if int(port) > 65_535:
        raise ValueError("must have a port from 0 to 65535")
    return Address(host=name, port=int(port))


def url(*schemes: str) -> Callable[[str], str]:
    """An absolute URL with a host (also as `?host=`, for a Postgres socket folder) and one of `schemes`."""

    def parse(raw: str) -> str:
        allowed = " or ".join(f"{scheme}://" for scheme in schemes)
        try:
            parts = urlsplit(raw)
            usable = parts.scheme in schemes and bool(parts.netloc or "host=" in parts.query)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(f"must be a URL that starts with {allowed}")
        return raw

    return parse


def networks(raw: str) -> tuple[Network, ...]:
    """A comma-separated list of CIDR ranges."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in raw.split(","))
    except ValueError:
        raise ValueError("must be a comma-separated list of ranges like 10.0.0.0/8 or fd00::/8") from None


def origins(raw: str) -> tuple[str, ...]:
    """A comma-separated list of origins: scheme, host and port of web pages."""
    found = tuple(part.strip() for part in raw.split(","))
    for each in found:
        try:
            parts = urlsplit(url("http", "https")(each))
            plain = parts.port != 0 and not (parts.path or parts.query or parts.fragment)
        except ValueError:
            plain = False
        if not plain:
            raise ValueError("must be a comma-separated list of origins like https://agents.example.com")
    return found


def file(raw: str) -> str:
    """The path of a file that can be read."""
    if not os.access(raw, os.R_OK):
        raise ValueError("must be the path of a readable file")
    return raw


def key(raw: str) -> bytes:
    """A 256-bit key as base64 or hex."""
    try:
        decoded = bytes.fromhex(raw) if len(raw) == 2 * _KEY_BYTES else base64.b64decode(raw, validate=True)
    except (ValueError, binascii.Error):
        decoded = b""
    if len(decoded) != _KEY_BYTES:
        raise ValueError("must be 32 bytes as base64 or hex")
    return decoded


def keys(raw: str) -> tuple[bytes, ...]:
    """256-bit keys with commas between them, each as base64 or hex."""
    try:
        return tuple(key(each.strip()) for each in raw.split(",") if each.strip())
    except ValueError:
        raise ValueError("must be keys of 32 bytes as base64 or hex, with commas between them") from None


def ratio(raw: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(raw)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ValueError("must be a number from 0 to 1")
    return value


def matching(pattern: str, allowed: str) -> Callable[[str], str]:
    """A text that matches `pattern` as a whole; `allowed` says it in words."""
    compiled = re.compile(pattern)

    def parse(raw: str) -> str:
        if not compiled.fullmatch(raw):
            raise ValueError(f"must be {allowed}")
        return raw

    return parse


name = matching(r"[a-z][a-z0-9_]{0,30}", "1 to 31 characters of a-z, 0-9 and _, a letter first")
token = matching(r"[A-Za-z0-9_.-]{16,200}", "16 to 200 characters of A-Z, a-z, 0-9, _ . and -")
url_path = matching(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*", "a URL path that starts with /")
domain = matching(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?::\d{1,5})?",
    "a domain name like functions.example.com",
)
