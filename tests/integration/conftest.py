"""The event loops of integration tests: asyncio's own, and for the HTTP client also uvloop, as in production."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

_ON_BOTH_LOOPS = {
    "test_endpoint_guard.py",
    "test_function_client.py",
    "test_hostile_functions.py",
    "test_kept_connections.py",
    "test_lean_http.py",
    "test_lean_http_dialing.py",
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Whose transports are below the client matters to it alone."""
    if item.path.name in _ON_BOTH_LOOPS:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
