"""Which web pages may talk to the MCP server: DNS rebinding makes a browser send what a page of another site wants.

Clients that are no browsers send no `Origin`. MCP demands 403 for one that is not expected.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from services.core.domain.errors import PermissionDenied
from services.core.runtime.parse import Address

_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int]
"""Scheme, host and port, compared as browsers do."""


@dataclass(frozen=True, slots=True)
class Origins:
    """`known` are expected; with `loopback` also every page of this machine."""

    known: frozenset[Origin] = frozenset()
    loopback: bool = False

    @classmethod
    def of(cls, urls: Iterable[str], listen: Address) -> Origins:
        """The origins of these URLs, and where only this machine is served, its own pages."""
        found = (origin_of(url) for url in urls if url)
        return cls(frozenset(origin for origin in found if origin is not None), is_loopback(listen.host))

    def check(self, header: str | None) -> None:
        """Raises PermissionDenied for an `Origin` header that is not expected."""
        if header is None:
            return
        origin = origin_of(header)
        if origin is not None and (origin in self.known or (self.loopback and is_loopback(origin[1]))):
            return
        raise PermissionDenied(
            "requests of web pages are taken from known origins only: see RUNR_MCP_ORIGINS", reason="UNKNOWN_ORIGIN"
        )


NO_ORIGINS = Origins()
"""No web page may."""


def origin_of(url: str) -> Origin | None:
    """The origin of a URL; None where it has none, as "null" or a file."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
