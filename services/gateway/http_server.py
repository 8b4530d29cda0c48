"""The HTTP server of the gateway, as a component of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from services.core.runtime.accepting import accept_no_more
from services.core.runtime.lifecycle import Component
from services.core.runtime.listen_fault import listen_fault
from services.core.runtime.parse import Address
from services.gateway.connection import Connection

_BACKLOG = 1_024
_KEPT_S = 0.5
_LOOK_S = 0.02
_THIS_MACHINE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on is not bound here


def own_url(listens: Address) -> str:
    """The URL of a gateway that listens there, as seen from its own machine where it listens on all addresses."""
    host = _THIS_MACHINE.get(listens.host, listens.host)
    return f"http://{Address(host, listens.port)}"


class HttpServer(Component):
    """Serves `app` on `address`; with port 0 the system chooses, see `address` after `start`.

    `drain` takes no new connections and gives requests in progress `grace_s` to end. A connection that is kept open
    for more requests ends after one that says so (`Connection: close`): from the moment on in which `is_draining`
    holds, and for `kept_s` after new connections are refused. A client's request would be lost that crosses the
    end of its connection.
    """

    name = "http"

    def __init__(
        self,
        app: web.Application,
        address: Address,
        *,
        grace_s: float = 10.0,
        kept_s: float = _KEPT_S,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._address = address
        self._grace_s = grace_s
        self._kept_s = kept_s
        self._is_draining = is_draining
        self._refuses = False
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> Address:
        """Where it listens; after `start` with the real port."""
        return self._address

    async def start(self) -> None:
        """Listens. Raises OSError, which names the address, when it is taken."""
        runner = web.AppRunner(self._app, handle_signals=False, shutdown_timeout=self._grace_s)
        self._app.on_response_prepare.append(self._part)
        await runner.setup()
        self._runner = runner
        # Not a site of aiohttp, whose end loses connections that are accepted at that moment.
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._connection, self._address.host, self._address.port, backlog=_BACKLOG
            )
        except OSError as error:
            raise listen_fault(self._address, error, "RUNR_HTTP_ADDR") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self._address = Address(host=host, port=port)

    def _connection(self) -> Connection:
        assert self._runner is not None
        assert self._runner.server is not None
        return Connection(self._runner.server)

    async def drain(self) -> None:
        """Ends what is in progress."""
        await self._refuse()
        await self._let_go()
        await self._close()

    async def stop(self) -> None:
        """Closes everything; a second call does nothing."""
        await self._refuse()
        await self._close()

    async def _refuse(self) -> None:
        self._refuses = True
        server, self._server = self._server, None
        if server is not None:
            await accept_no_more(server)
            server.close()

    async def _let_go(self) -> None:
        """Give connections that are kept the time for a last request, unless there are none."""
        if self._runner is None or self._runner.server is None:
            return
        for _ in range(round(self._kept_s / _LOOK_S)):
            if not self._runner.server.connections:
                break
            await asyncio.sleep(_LOOK_S)

    async def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            # aiohttp waits the grace for requests to end, cancels them, and waits as long again.
            async with asyncio.timeout(2 * self._grace_s + 1.0):
                await runner.cleanup()

    async def _part(self, _: web.Request, response: web.StreamResponse) -> None:
        """The last answer of a connection says so."""
        if self._refuses or self._is_draining():
            response.force_close()
            response.headers["Connection"] = "close"
