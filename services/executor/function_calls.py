"""The function client as a component of the process."""

from __future__ import annotations

from services.core.domain.endpoint import EndpointPolicy
from services.core.runtime.clock import Clock
from services.core.runtime.lifecycle import Component
from services.core.runtime.settings import FunctionSettings
from services.core.runtime.version import engine_version
from services.executor.function_client import FunctionClient, HttpFunctionClient


class FunctionCalls(Component):
    """Owns the connections to functions."""

    name = "functions"

    def __init__(self, settings: FunctionSettings, clock: Clock) -> None:
        self._client = HttpFunctionClient(
            policy=EndpointPolicy(settings.allow_private, settings.allowed_networks),
            unix_seconds=lambda: clock.unix_ms() // 1000,
            version=engine_version(),
            connect_timeout_s=settings.connect_timeout_s,
        )
        self._open = False

    @property
    def client(self) -> FunctionClient:
        """How functions are called, once started."""
        return self._client

    async def start(self) -> None:
        """See `Component.start`."""
        await self._client.__aenter__()
        self._open = True

    async def stop(self) -> None:
        """See `Component.stop`."""
        if self._open:
            self._open = False
            await self._client.__aexit__(None, None, None)
