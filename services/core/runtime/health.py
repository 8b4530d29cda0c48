"""Health and readiness over HTTP: `/healthz` says the process turns, `/readyz` whether it may get work.

Readiness is real: every check that components registered is asked on each request. Reasons name the dependency and the
kind of fault only, never an address or a secret.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from services.core.runtime.parse import Address

log = logging.getLogger(__name__)

Check = Callable[[], Awaitable[None]]

_CHECK_TIMEOUT_S = 2.0


class NotReady(Exception):
    """Raised by a check; its text is shown to whoever asks, so it must not hold secrets."""


class Health:
    """The readiness of one process: not ready until started, not ready again from the first moment of a drain."""

    def __init__(self, whole: Health | None = None) -> None:
        self._checks: dict[str, Check] = {}
        self._states: dict[str, Callable[[], str]] = {}
        self._whole = whole
        self._phase = "starting"

    def part(self, name: str) -> Health:
        """The readiness of one service among several in the process: own checks, shared life."""
        part = Health(self)

        async def check() -> None:
            report = await part._ask_all()
            faults = [f"{asked}: {reason}" for asked, reason in report.items() if reason != "ok"]
            if faults:
                raise NotReady(", ".join(faults))

        self.register(name, check)
        return part

    def register(self, name: str, check: Check) -> None:
        """Adds a check that raises when its dependency cannot be used; `NotReady` to say why."""
        if name in self._checks:
            raise ValueError(f"a readiness check named {name} exists already")
        self._checks[name] = check

    def observe(self, name: str, state: Callable[[], str]) -> None:
        """Adds a state that readiness tells and that decides nothing: of a dependency the service can do without."""
        self._states[name] = state

    def set_started(self) -> None:
        """All components run; from now on the checks decide."""
        self._phase = "started"

    def set_draining(self) -> None:
        """The process takes no new work; final."""
        self._phase = "draining"

    async def readiness(self) -> tuple[bool, Mapping[str, str]]:
        """Whether the process may get work; `ok` or the reason for the process and each check, and observed states."""
        phase = self._whole._phase if self._whole else self._phase
        report = {"process": "ok" if phase == "started" else phase, **await self._ask_all()}
        ready = all(reason == "ok" for reason in report.values())
        return ready, report | {name: state() for name, state in self._states.items()}

    async def _ask_all(self) -> dict[str, str]:
        results = await asyncio.gather(*(_ask(check) for check in self._checks.values()))
        return dict(zip(self._checks, results, strict=True))


async def _ask(check: Check) -> str:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            await check()
    except NotReady as error:
        return str(error) or "not ready"
    except TimeoutError:
        return f"no answer within {_CHECK_TIMEOUT_S:g} s"
    except Exception as error:
        # The text of a foreign error may hold an address or a password.
        return type(error).__name__
    return "ok"


class HealthServer:
    """Serves the two routes on an address of its own, so a busy gRPC or HTTP server does not hide them."""

    name = "health"

    def __init__(
        self, health: Health, address: Address, service: str, *, listener: socket.socket | None = None
    ) -> None:
        """`listener` is served instead of `address`."""
        self._listener = listener
        self._health = health
        self._address = address
        self._service = service
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> Address:
        """Where it listens; after `start` with the port that the system chose for port 0."""
        return self._address

    async def start(self) -> None:
        """Listens. Raises OSError when the address is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        self._runner = runner
        if self._listener is not None:
            await web.SockSite(runner, self._listener).start()
        else:
            await web.TCPSite(runner, self._address.host, self._address.port).start()
        host, port = runner.addresses[0][:2]
        self._address = Address(host=host, port=port)

    async def stop(self) -> None:
        """Closes the server; a second call does nothing."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "service": self._service})

    async def _readyz(self, request: web.Request) -> web.Response:
        ready, report = await self._health.readiness()
        body = {"status": "ready" if ready else "not_ready", "service": self._service, "checks": dict(report)}
        return web.json_response(body, status=200 if ready else 503)
