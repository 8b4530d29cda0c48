"""Opening connections: name, address, TCP, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address

import aiohappyeyeballs

from services.executor.lean_http.connection import Connection, Origin, Owner
from services.executor.lean_http.errors import AddressRefused, ConnectionBroken
from services.executor.lean_http.names import Resolve, SharedLookups

_NEXT_ADDRESS_S = 0.25  # RFC 8305
_TLS_GOODBYE_S = 2.0

OpenSocket = Callable[[str], socket.socket]


class Dialer:
    """Opens connections to origins, to no other addresses than those that its two arguments let through.

    `resolve` is asked for the addresses of a name, `open_socket` for a socket to one address; what they raise as
    AddressRefused passes through. No proxy is used. The addresses are tried in order, the next one when the one
    before has failed or has not answered for a quarter of a second.
    """

    def __init__(self, *, resolve: Resolve, open_socket: OpenSocket, timeout_s: float) -> None:
        self._names = SharedLookups(resolve)
        self._open_socket = open_socket
        self._timeout_s = timeout_s
        self._tls: dict[bool, ssl.SSLContext] = {}
        self._tls_making = asyncio.Lock()

    async def dial(self, origin: Origin, owner: Owner) -> Connection:
        """A new connection. Raises AddressRefused and ConnectionBroken."""
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await self._dial(origin, owner)
        except AddressRefused:
            raise
        # RuntimeError: what uvloop raises in places where asyncio raises OSError.
        except (OSError, RuntimeError) as error:
            if limit.expired():
                raise ConnectionBroken(f"no connection within {self._timeout_s:g} s") from None
            reason = str(error) or type(error).__name__
            raise ConnectionBroken(f"cannot connect to {origin.host}:{origin.port}: {reason}") from error

    def close(self) -> None:
        """Look nothing up any more."""
        self._names.close()

    async def _dial(self, origin: Origin, owner: Owner) -> Connection:
        addresses = [origin.host] if _is_address(origin.host) else await self._names(origin.host)
        tls = await self._context(origin) if origin.scheme == "https" else None
        connected = await aiohappyeyeballs.start_connection(
            [_addr_info(address, origin.port) for address in addresses],
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
            socket_factory=lambda info: self._open_socket(info[4][0]),
        )
        connection = Connection(origin, connected, asyncio.get_running_loop(), owner)
        try:
            await self._start(connection, connected, tls)
        except BaseException:
            connection.abandon()
            raise
        return connection

    async def _start(self, connection: Connection, connected: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        if tls is None:
            await loop.create_connection(lambda: connection, sock=connected)
            return
        await loop.create_connection(
            lambda: connection,
            sock=connected,
            ssl=tls,
            server_hostname=connection.origin.host.removesuffix("."),  # in SNI a name has no final dot
            ssl_handshake_timeout=self._timeout_s,
            ssl_shutdown_timeout=_TLS_GOODBYE_S,
        )

    async def _context(self, origin: Origin) -> ssl.SSLContext:
        """The TLS settings; made when they are first needed, in a thread, for reading the authorities takes a while."""
        async with self._tls_making:
            context = self._tls.get(origin.verify_tls)
            if context is None:
                context = self._tls[origin.verify_tls] = await asyncio.to_thread(_tls_context, origin.verify_tls)
            return context


def _tls_context(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _addr_info(address: str, port: int) -> tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
