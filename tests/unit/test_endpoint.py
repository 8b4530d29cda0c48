"""Endpoints beyond the vectors: neighbours of every blocked range, forms of addresses, what a policy lifts."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.endpoint import EndpointPolicy, check_address, check_url
from services.core.domain.errors import InvalidInput

PRIVATE = EndpointPolicy(allow_private=True)


def is_refused(address: str, policy: EndpointPolicy | None = None) -> bool:
    """Whether an address is refused, as a literal in a URL and as an answer of a resolver alike."""
    policy = policy or EndpointPolicy()
    host = f"[{address}]" if ":" in address else address
    verdicts = []
    for check in (lambda: check_address(address, policy), lambda: check_url(f"http://{host}/", policy)):
        try:
            check()
        except InvalidInput:
            verdicts.append(True)
        else:
            verdicts.append(False)
    assert verdicts[0] == verdicts[1]
    return verdicts[0]


@pytest.mark.parametrize(
    "network",
    [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
        "2001:db8::/32",
        "2001::/23",
        "64:ff9b:1::/48",
        "100::/64",
        "3fff::/20",
        "5f00::/16",
    ],
)
def test_a_blocked_range_is_blocked_from_its_first_address_to_its_last(network: str) -> None:
    blocked = ip_network(network)

    assert is_refused(str(blocked[0]))
    assert is_refused(str(blocked[-1]))
    assert is_refused(str(blocked[blocked.num_addresses // 2]))


@pytest.mark.parametrize(
    "address",
    [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2000::",
        "2001:200::",
        "2003::1",
        "2606:4700::1111",
        "3ffe:ffff::1",
    ],
)
def test_its_neighbours_are_public(address: str) -> None:
    assert not is_refused(address)


@given(st.integers(0, 2**32 - 1))
def test_an_address_inside_another_is_judged_as_itself(number: int) -> None:
    inner = IPv4Address(number)
    refused = is_refused(str(inner))

    for prefix, shift in (("::ffff:0:0", 0), ("64:ff9b::", 0), ("2002::", 80)):
        assert is_refused(str(IPv6Address(int(ip_address(prefix)) | number << shift))) == refused
    if number > 1:
        assert is_refused(str(IPv6Address(number))) == refused


@given(st.integers(0, 2**128 - 1))
def test_what_python_knows_to_be_special_is_refused(number: int) -> None:
    address = IPv6Address(number)

    if address.ipv4_mapped is None and address.sixtofour is None and not address.is_global:
        assert is_refused(str(address))


@pytest.mark.parametrize(
    "address", ["fe80::1%eth0", "::1", "::", "::ffff:0:127.0.0.1", "not an address", "", "127.0.0.1/8"]
)
def test_odd_answers_of_a_resolver(address: str) -> None:
    with pytest.raises(InvalidInput):
        check_address(address)


@pytest.mark.parametrize(
    "host",
    [
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "1.1.1.1.",
        "1.1.1",
        "1.1.1.256",
        "1.1.1.1.1",
        "01.1.1.1",
        "0x8.8.8.8",
        "8.8.8.0x8",
        "8.8.8.8.0x",
        "134744072",
        "[8.8.8.8]",
        "[::1",
        "::1]",
        "[]",
        "[fe80::1%25eth0]",
        "[::g]",
        "[1.1.1.1]:80:90",
    ],
)
@pytest.mark.parametrize("policy", [EndpointPolicy(), PRIVATE])
def test_forms_that_parsers_read_differently_are_refused_whatever_the_policy(host: str, policy: EndpointPolicy) -> None:
    with pytest.raises(InvalidInput):
        check_url(f"http://{host}/", policy)


@pytest.mark.parametrize(
    "url",
    [
        "//example.com/",
        "example.com",
        "https//example.com",
        "https:example.com",
        "https://",
        "https:///x",
        "https://:80/",
        "https://example.com:/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:123456/",
        "https://example.com:+80/",
        "https://example.com:8 0/",
        "https://a@b/",
        "https://example.com/@x",
        "https://a%40b/",
        "https://exa%6dple.com/",
        "https://example..com/",
        "https://.example.com/",
        "https://-a.com/",
        "https://a-.com/",
        "https://" + "a" * 64 + ".com/",
        "https://" + "a." * 127 + "com/",
        "https://example.com/#x",
        "https://example.com/a b",
        "https://example.com\\@evil.test/",
        "https://example.com\t/",
        "https://exämple.com/",
        "https://example.com/ä",
        "\u200bhttps://example.com/",
        "https://example.com/\x7f",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:,x",
        "HTTP+UNIX://x/",
        "https://example.com/" + "a" * 2048,
        "https://example.com..",
        "https://a,b/",
        "https://a b/",
    ],
)
def test_refused_urls(url: str) -> None:
    for policy in (EndpointPolicy(), PRIVATE):
        with pytest.raises(InvalidInput) as refused:
            check_url(url, policy)
        assert refused.value.errors[0].path == "endpoint_url"


@pytest.mark.parametrize("value", [None, 5, b"https://example.com/", ["https://example.com/"], {}])
def test_only_texts_are_urls(value: object) -> None:
    with pytest.raises(InvalidInput):
        check_url(value)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://Example.COM", ("https", "example.com", 443, "/")),
        ("HTTP://example.com:8080/a/b?c=%20d", ("http", "example.com", 8080, "/a/b?c=%20d")),
        ("http://my_service.ns.svc.cluster.local./x", ("http", "my_service.ns.svc.cluster.local.", 80, "/x")),
        ("http://xn--mnchen-3ya.de?x", ("http", "xn--mnchen-3ya.de", 80, "/?x")),
        ("http://redis:6379/", ("http", "redis", 6379, "/")),
        ("http://1.1.1.1:81/", ("http", "1.1.1.1", 81, "/")),
        ("http://[2606:4700:4700:0:0:0:0:1111]/", ("http", "2606:4700:4700::1111", 80, "/")),
    ],
)
def test_parts_of_a_url(url: str, parts: tuple[str, str, int, str]) -> None:
    endpoint = check_url(url)

    assert (endpoint.scheme, endpoint.host, endpoint.port, endpoint.target) == parts
    assert (endpoint.address is not None) == (parts[1][0] in "12")


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "localhost.", "a.localhost", "x.y.localhost."])
def test_localhost_is_refused_as_a_name_unless_private_is_allowed(host: str) -> None:
    with pytest.raises(InvalidInput):
        check_url(f"http://{host}/")
    with pytest.raises(InvalidInput):
        check_url(f"http://{host}/", EndpointPolicy.of(allow_private=False, allowed_cidrs=["127.0.0.0/8", "::1/128"]))
    assert check_url(f"http://{host}/", PRIVATE).host == host.lower()
    assert check_url("http://localhost.example.com/").host == "localhost.example.com"


def test_what_a_policy_allows() -> None:
    office = EndpointPolicy.of(allow_private=False, allowed_cidrs=["10.1.0.0/16", "fd00:1::/32"])

    assert not is_refused("10.1.2.3", office)
    assert not is_refused("::ffff:10.1.2.3", office)
    assert not is_refused("fd00:1::5", office)
    assert is_refused("10.2.0.1", office)
    assert is_refused("127.0.0.1", office)
    assert not is_refused("127.0.0.1", PRIVATE)
    assert not is_refused("fe80::1", PRIVATE)
    with pytest.raises(ValueError, match="host bits"):
        EndpointPolicy.of(allow_private=False, allowed_cidrs=["10.1.2.3/8"])


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "[fc00::1]", "[::1]", "[4000::1]", "localhost"])
def test_a_refusal_names_the_setting_that_lifts_it(host: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_url(f"http://{host}:8000")
    named = set(re.findall(r"WORKFLOWS_\w+", caught.value.errors[0].message))
    ranges = set() if host == "localhost" else {"WORKFLOWS_ALLOWED_ENDPOINT_CIDRS"}
    assert named == {"WORKFLOWS_ALLOW_PRIVATE_ENDPOINTS"} | ranges
