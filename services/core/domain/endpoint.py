"""Which URLs and addresses the engine may call (engine section 10).

Two doors: `check_url` when an endpoint is set, `check_address` for every address that its name resolves to, at every
connect, so that a name whose answer changes (DNS rebinding) gains nothing. Nothing is trimmed and nothing is guessed: a
host that one parser reads as an address and another as a name is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from services.core.domain.errors import InvalidInput

MAX_URL = 2048
_MAX_HOST = 253
# The operator's settings that lift the rule, for the text of a refusal.
_ALLOW = "WORKFLOWS_ALLOW_PRIVATE_ENDPOINTS=true"
_ALLOW_RANGES = "WORKFLOWS_ALLOWED_ENDPOINT_CIDRS"

Network = IPv4Network | IPv6Network

# IANA special-purpose ranges, multicast and reserved space. Some can be reached (AS112): no function is there.
_BLOCKED_V4 = [
    (IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "IETF protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "AMT"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
]
_GLOBAL_V6 = IPv6Network("2000::/3")
_BLOCKED_V6 = [
    (IPv6Network(network), why)
    for network, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard-only"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "IETF protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("2620:4f:8000::/48", "AS112"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
]
# Ranges that carry an IPv4 address, and how far it is from the right.
_CARRIERS = [
    (IPv6Network("::/96"), 0),
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
]

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?P<rest>#.*)?"
)
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_DEFAULT_PORT = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    """What the operator allows. `allow_private` lifts the address rule, and nothing else; `allowed` names ranges."""

    allow_private: bool = False
    allowed: tuple[Network, ...] = ()

    @classmethod
    def of(cls, *, allow_private: bool, allowed_cidrs: Sequence[str] = ()) -> EndpointPolicy:
        """The policy for ranges in CIDR notation. Raises ValueError for one that is none."""
        return cls(allow_private, tuple(ip_network(cidr) for cidr in allowed_cidrs))


@dataclass(frozen=True, slots=True)
class ParsedEndpoint:
    """A URL that may be called. `host` is lower case, without brackets; `address` is set where it is a literal."""

    scheme: str
    host: str
    port: int
    target: str
    address: IPv4Address | IPv6Address | None = None


PUBLIC_ONLY = EndpointPolicy()
"""The policy of a production stack."""


def check_url(url: object, policy: EndpointPolicy = PUBLIC_ONLY, *, path: str = "endpoint_url") -> ParsedEndpoint:
    """Take an endpoint's URL apart, or raise InvalidInput saying what is wrong with it, at `path`.

    A name is judged as a name only: its addresses are judged by `check_address` when they are known.
    """
    try:
        return _check_url(url, policy)
    except ValueError as error:
        raise InvalidInput.of(path, str(error), reason="ENDPOINT_REFUSED") from None


def check_address(address: str, policy: EndpointPolicy = PUBLIC_ONLY) -> None:
    """Judge one address that is about to be connected to. Raises InvalidInput naming the range it is in."""
    try:
        _check_address(ip_address(address.partition("%")[0]), policy)
    except ValueError as error:
        raise InvalidInput.of("", str(error), reason="ENDPOINT_REFUSED") from None


def _check_url(url: object, policy: EndpointPolicy) -> ParsedEndpoint:
    if not isinstance(url, str) or not url:
        raise ValueError("must be a URL like https://functions.example.com/orders")
    if len(url) > MAX_URL:
        raise ValueError(f"must be at most {MAX_URL} characters, it has {len(url)}")
    for character in url:
        if not "!" <= character <= "~" or character == "\\":
            raise ValueError(f"must not hold {character!a}: write it percent-encoded, a host in its ASCII form")
    match = _URL.fullmatch(url)
    if match is None or match["scheme"].lower() not in _DEFAULT_PORT:
        raise ValueError("must begin with http:// or https://")
    if "@" in url or "%40" in match["authority"]:
        raise ValueError("must hold no credentials and no @ at all")
    if match["rest"]:
        raise ValueError("must have no fragment (#): it is never sent")
    parts = _AUTHORITY.fullmatch(match["authority"])
    if parts is None:
        raise ValueError(f"has no valid host and port: {match['authority']!r}")
    scheme = match["scheme"].lower()
    port = int(parts["port"]) if parts["port"] else _DEFAULT_PORT[scheme]
    if not 1 <= port <= 65535:
        raise ValueError(f"has no valid port: {port}")
    target = (match["path"] or "/") + (match["query"] or "")
    address = _literal(parts["v6"], parts["name"])
    if address is not None:
        _check_address(address, policy)
        return ParsedEndpoint(scheme, str(address), port, target, address)
    return ParsedEndpoint(scheme, _checked_name(parts["name"], policy), port, target)


def _literal(v6: str | None, name: str | None) -> IPv4Address | IPv6Address | None:
    """The address that a host is written as; None for a name. Only the canonical form of IPv4 is one."""
    if v6 is not None:
        if "%" in v6:
            raise ValueError("must not name a zone (%) in an address")
        try:
            return IPv6Address(v6)
        except ValueError:
            raise ValueError(f"has no valid IPv6 address: [{v6}]") from None
    assert name is not None, "the pattern has one of the two"
    if not _NUMBER.fullmatch(name.removesuffix(".").rpartition(".")[2]):
        return None
    try:
        return IPv4Address(name)
    except ValueError:
        raise ValueError(f"has an IPv4 address that is not four plain decimal numbers: {name}") from None


def _checked_name(name: str, policy: EndpointPolicy) -> str:
    host = name.removesuffix(".").lower()
    if not host:
        raise ValueError("has no host")
    if len(host) > _MAX_HOST:
        raise ValueError(f"has a host of {len(host)} characters, {_MAX_HOST} are allowed")
    if not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise ValueError(f"has no valid host: {name!r}")
    if host.split(".")[-1] == "localhost" and not policy.allow_private:
        raise ValueError(f"must not be localhost, unless {_ALLOW} is set")
    return name.lower()


def _check_address(address: IPv4Address | IPv6Address, policy: EndpointPolicy) -> None:
    if policy.allow_private or any(address in network for network in policy.allowed):
        return
    if isinstance(address, IPv6Address):
        _check_v6(address, policy)
        return
    for network, why in _BLOCKED_V4:
        if address in network:
            raise _not_public(address, f"{why} ({network})")


def _check_v6(address: IPv6Address, policy: EndpointPolicy) -> None:
    for network, why in _BLOCKED_V6:
        if address in network:
            raise _not_public(address, f"{why} ({network})")
    for carrier, shift in _CARRIERS:
        if address in carrier:
            _check_address(IPv4Address(int(address) >> shift & 0xFFFFFFFF), policy)
            return
    if address not in _GLOBAL_V6:
        raise _not_public(address, f"outside of {_GLOBAL_V6}")


def _not_public(address: IPv4Address | IPv6Address, why: str) -> ValueError:
    return ValueError(f"the address {address} is not public: {why}; to allow it, set {_ALLOW} or {_ALLOW_RANGES}")
