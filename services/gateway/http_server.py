"""The HTTP server of the gateway, as a component of its process."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from services.core.runtime.lifecycle import Component
from services.core.runtime.parse import Address

# Longer than what balancers keep idle connections (60 s), so that they close first. It is also what a client has for
# sending its headers.
_KEEPALIVE_S = 75.0
_LINGER_S = 2.0
_MAX_FIELD_BYTES = 16 * 1024


class HttpServer(Component):
    """Serves `app` on `address`; with port 0 the system chooses, see `address` after `start`.

    `drain` takes no new connections and gives requests in progress `grace_s` to end.
    """

    name = "http"

    def __init__(self, app: web.Application, address: Address, *, grace_s: float = 10.0) -> None:
        self._app = app
        self._address = address
        self._grace_s = grace_s
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> Address:
        """Where it listens; after `start` with the real port."""
        return self._address

    async def start(self) -> None:
        """Listens. Raises OSError when the address is taken."""
        runner = web.AppRunner(
            self._app,
            access_log=None,
            logger=_ServerLog(logging.getLogger(__name__), {}),
            handle_signals=False,
            # A few compressed bytes may hold gigabytes, and broken ones would end the connection without an answer.
            auto_decompress=False,
            keepalive_timeout=_KEEPALIVE_S,
            lingering_time=_LINGER_S,
            max_field_size=_MAX_FIELD_BYTES,
            max_line_size=_MAX_FIELD_BYTES,
            shutdown_timeout=self._grace_s,
        )
        await runner.setup()
        self._runner = runner
        site = web.TCPSite(runner, self._address.host, self._address.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        self._address = Address(host=host, port=port)

    async def drain(self) -> None:
        """Ends what is in progress."""
        await self._close()

    async def stop(self) -> None:
        """Closes everything; a second call does nothing."""
        await self._close()

    async def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            # aiohttp waits the grace for requests to end, cancels them, and waits as long again.
            async with asyncio.timeout(2 * self._grace_s + 1.0):
                await runner.cleanup()


class _ServerLog(logging.LoggerAdapter[logging.Logger]):
    """What aiohttp says of itself. Bytes that are not HTTP are their sender's fault: they are answered with 400. That a
    client has gone is no fault.
    """

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        if isinstance(exc_info, HttpProcessingError):
            self.debug("what a client sent is not HTTP: %s", exc_info.message.partition("\n")[0])
        elif isinstance(exc_info, ConnectionError):
            self.debug("a client has gone before it had its answer")
        else:
            super().exception(msg, *args, exc_info=exc_info, **more)
