"""How a listening server of asyncio comes to its end without losing a connection."""

from __future__ import annotations

import asyncio

_TURNS = 3
"""How many turns of the loop lie between a socket that is accepted and its connection."""


async def accept_no_more(server: asyncio.Server) -> None:
    """Stop accepting, and let what is accepted already become a connection: asyncio would lose its socket if the server
    were closed first. The server is then to be closed.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
