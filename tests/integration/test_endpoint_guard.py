"""No packet leaves for an address that the operator does not allow, whatever names and name servers say."""

from __future__ import annotations

import time

import pytest

from services.core.domain.endpoint import PUBLIC_ONLY, EndpointPolicy
from services.core.domain.envelope import introspect_request
from services.core.domain.op import FunctionFault
from services.executor.endpoint_guard import EndpointGuard, SystemLookup
from services.executor.function_client import HttpFunctionClient, Target
from services.executor.lean_http.errors import AddressRefused
from tests.support.fake_function import KEY, FakeFunction

LOOPBACK_ONLY = EndpointPolicy.of(allow_private=False, allowed_cidrs=["127.0.0.1/32"])


class Names:
    """A name server whose answers a test may change."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.addresses


def make_client(policy: EndpointPolicy, names: Names) -> HttpFunctionClient:
    return HttpFunctionClient(policy=policy, unix_seconds=lambda: int(time.time()), version="0", lookup=names)


async def call(client: HttpFunctionClient, url: str) -> int:
    return (await client.call(Target(url, (KEY,)), "introspect", introspect_request(1), {}, 5.0)).status


async def refusal(client: HttpFunctionClient, url: str) -> str:
    with pytest.raises(FunctionFault) as raised:
        await call(client, url)
    assert raised.value.name == "EndpointRefused"
    return raised.value.message


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["0.0.0.0"], ["169.254.169.254"]],
)
async def test_a_name_with_any_private_address_is_not_connected_to(addresses: list[str]) -> None:
    async with FakeFunction() as function, make_client(PUBLIC_ONLY, Names(*addresses)) as client:
        message = await refusal(client, f"http://functions.test:{function.port}/")
        assert function.connections == 0
    assert "is not public" in message


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1", "localhost"])
async def test_a_private_host_is_refused_without_a_lookup(host: str) -> None:
    names = Names("93.184.216.34")
    async with FakeFunction() as function, make_client(PUBLIC_ONLY, names) as client:
        await refusal(client, f"http://{host}:{function.port}/")
        assert function.connections == 0
    assert names.asked == []


async def test_an_allowed_range_is_reached_by_name_and_by_address() -> None:
    async with FakeFunction() as function, make_client(LOOPBACK_ONLY, Names("127.0.0.1")) as client:
        assert await call(client, f"http://functions.test:{function.port}/") == 200
        assert await call(client, f"http://127.0.0.1:{function.port}/") == 200
        assert function.requests[0].headers["host"] == f"functions.test:{function.port}"


async def test_every_address_is_tried() -> None:
    policy = EndpointPolicy.of(allow_private=False, allowed_cidrs=["127.0.0.0/30"])
    async with FakeFunction() as function, make_client(policy, Names("127.0.0.2", "127.0.0.1")) as client:
        assert await call(client, f"http://functions.test:{function.port}/") == 200


async def test_a_name_that_turns_private_is_refused_at_the_next_connection() -> None:
    names = Names("93.184.216.34")
    guard = EndpointGuard(PUBLIC_ONLY, names, timeout_s=1)
    assert await guard.resolve("functions.test") == ["93.184.216.34"]
    names.addresses = ["10.0.0.5"]
    with pytest.raises(AddressRefused):
        await guard.resolve("functions.test")


def test_a_socket_to_a_refused_address_is_never_made() -> None:
    guard = EndpointGuard(PUBLIC_ONLY, Names(), timeout_s=1)
    with pytest.raises(AddressRefused):
        guard.open_socket("10.0.0.1")
    guard.open_socket("93.184.216.34").close()


@pytest.mark.parametrize(
    "url", ["ftp://a.test/", "http://u:p@a.test/", "http://a.test/#x", " http://a.test/", "a.test"]
)
async def test_a_url_that_is_none_is_refused(url: str) -> None:
    async with make_client(EndpointPolicy(allow_private=True), Names("127.0.0.1")) as client:
        await refusal(client, url)


async def test_the_machine_resolves_its_own_name() -> None:
    lookup = SystemLookup()
    try:
        assert "127.0.0.1" in await lookup("localhost") or "::1" in await lookup("localhost")
    finally:
        lookup.close()
