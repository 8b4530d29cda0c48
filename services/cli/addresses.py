"""Addresses of this machine, before somebody listens there."""

from __future__ import annotations

import asyncio
import socket
import time

from services.core.runtime.listen_fault import listen_fault
from services.core.runtime.parse import Address

_LOOK_S = 0.25


async def free_address(address: Address, variable: str, *, within_s: float) -> Address:
    """The address, once nobody listens there. Raises OSError, which names it and the setting that it is of."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            bound(address, socket.SO_REUSEADDR).close()
            return address
        except OSError as error:
            if time.monotonic() > deadline:
                raise listen_fault(address, error, variable) from error
        await asyncio.sleep(_LOOK_S)


def bound(address: Address, *options: int) -> socket.socket:
    """A socket that has the address and does not listen. Raises OSError."""
    family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind(place)
    except OSError:
        made.close()
        raise
    return made
