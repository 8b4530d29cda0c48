"""The last door before a packet leaves: which addresses the engine connects to (engine section 10).

An endpoint's URL was judged when it was set. It is judged again at each call, its host is resolved for a new
connection, every address of that answer is judged, and the connection goes to exactly those addresses: a name that
answers differently the second time (DNS rebinding) gains nothing. The socket is judged once more as it is opened,
because a literal address never meets the resolver.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from yarl import URL

from services.core.domain.endpoint import EndpointPolicy, check_address, check_url
from services.core.domain.errors import InvalidInput
from services.core.domain.op import FunctionFault

_LOOKUPS_AT_ONCE = 32
_JUDGED_URLS = 4096

Lookup = Callable[[str], Awaitable[list[str]]]
"""All addresses of a host name, IPv4 and IPv6. Raises OSError where there are none."""


class AddressRefused(OSError):
    """An address that the policy does not allow. An OSError, because that is what a connector takes for "not there"."""


class SystemLookup:
    """The machine's resolver, in threads of its own: a slow name server must not hold up what else needs a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS_AT_ONCE, thread_name_prefix="dns")

    async def __call__(self, host: str) -> list[str]:
        """The addresses of `host` in the order of preference of the machine."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _getaddrinfo, host)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """Take no more lookups; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class EndpointGuard(AbstractResolver):
    """Resolves names for the HTTP client and opens its sockets, both under the policy."""

    def __init__(self, policy: EndpointPolicy, lookup: Lookup, *, timeout_s: float) -> None:
        self._policy = policy
        self._lookup = lookup
        self._timeout_s = timeout_s
        self._judged = lru_cache(_JUDGED_URLS)(self._judge)

    def url(self, url: str) -> URL:
        """The URL to call, put together from the parts that were judged. Raises FunctionFault `EndpointRefused`."""
        judged = self._judged(url)
        if isinstance(judged, str):
            raise FunctionFault("EndpointRefused", judged)
        return judged

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """All addresses of the host; not one of them if any is refused. Raises OSError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = await self._lookup(host)
        except TimeoutError:
            raise OSError(f"the name server gave no answer within {self._timeout_s:g} s") from None
        if not addresses:
            raise OSError("the name has no address")
        for address in addresses:
            self._check(address)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    def open_socket(self, address: AddrInfoType) -> socket.socket:
        """A socket for one address that is about to be connected to. Raises AddressRefused."""
        family, kind, protocol, _, peer = address
        self._check(peer[0])
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """Nothing is held here: the lookup belongs to whoever made it."""

    def _check(self, address: str) -> None:
        try:
            check_address(address, self._policy)
        except InvalidInput as error:
            raise AddressRefused(error.message) from None

    def _judge(self, url: str) -> URL | str:
        """The URL in its parts, or why it is refused."""
        try:
            parsed = check_url(url, self._policy)
        except InvalidInput as error:
            return error.message
        host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
        return URL(f"{parsed.scheme}://{host}:{parsed.port}{parsed.target}", encoded=True)


def _getaddrinfo(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
