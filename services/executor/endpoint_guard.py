"""The last door before a packet leaves: which addresses the engine connects to (engine section 10).

An endpoint's URL was judged when it was set. It is judged again at each call, its host is resolved for a new
connection, every address of that answer is judged, and the connection goes to exactly those addresses: a name that
answers differently the second time (DNS rebinding) gains nothing. The socket is judged once more as it is opened,
because a literal address never meets the resolver.

A kept connection goes on being used whatever its name says by then: it was opened to an address that was allowed, and
it is not kept for longer than a minute.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from services.core.domain.endpoint import EndpointPolicy, ParsedEndpoint, check_address, check_url
from services.core.domain.errors import InvalidInput
from services.core.domain.op import FunctionFault
from services.executor.lean_http.errors import AddressRefused

_LOOKUPS_AT_ONCE = 32
_JUDGED_URLS = 4096

Lookup = Callable[[str], Awaitable[list[str]]]
"""All addresses of a host name, IPv4 and IPv6. Raises OSError where there are none."""


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


class EndpointGuard:
    """Resolves names for the HTTP client and opens its sockets, both under the policy."""

    def __init__(self, policy: EndpointPolicy, lookup: Lookup, *, timeout_s: float) -> None:
        self._policy = policy
        self._lookup = lookup
        self._timeout_s = timeout_s
        self._judged = lru_cache(_JUDGED_URLS)(self._judge)

    def endpoint(self, url: str) -> ParsedEndpoint:
        """The parts of a URL that may be called. Raises FunctionFault `EndpointRefused`."""
        judged = self._judged(url)
        if isinstance(judged, str):
            raise FunctionFault("EndpointRefused", judged)
        return judged

    async def resolve(self, host: str) -> list[str]:
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
        return addresses

    def open_socket(self, address: str) -> socket.socket:
        """A socket for one address that is about to be connected to. Raises AddressRefused."""
        self._check(address)
        return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)

    def _check(self, address: str) -> None:
        try:
            check_address(address, self._policy)
        except InvalidInput as error:
            raise AddressRefused(error.message) from None

    def _judge(self, url: str) -> ParsedEndpoint | str:
        """The URL in its parts, or why it is refused."""
        try:
            return check_url(url, self._policy)
        except InvalidInput as error:
            return error.message


def _getaddrinfo(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
