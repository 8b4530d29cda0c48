"""A registry with a fixed key and a fixed clock, and an engine that drives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runr_workflows import Workflows
from runr_workflows.client import AsyncClient, Client, exchange
from sdk.python.tests.engine import KEY, NOW, FakeEngine
from sdk.python.tests.scripted_api import Both, Server


@pytest.fixture
def wf() -> Iterator[Workflows]:
    """A registry that holds KEY and lives at NOW."""
    registry = Workflows(signing_key=KEY, clock=lambda: NOW)
    yield registry
    registry.close()


@pytest.fixture
def engine(wf: Workflows) -> FakeEngine:
    """An engine with 3 retries and no events."""
    return FakeEngine(wf.handle_request)


@pytest.fixture
def server() -> Iterator[Server]:
    """An API by script."""
    made = Server()
    yield made
    made.close()


@pytest.fixture(params=[Client, AsyncClient], ids=["blocking", "async"])
def client(request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch) -> Both:
    """The blocking client and then the async one; neither pauses for long."""
    monkeypatch.setattr(exchange, "_FIRST_PAUSE_S", 0.001)
    return Both(request.param, server)
