"""A stack with servers of its own, so that they can be taken away from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from services.embedded.stack import EmbeddedStack
from tests.support import invariants
from tests.support.homes import temporary_home
from tests.support.orders import Orders, Sides, ordering
from tests.support.postgres import run_apart
from tests.support.service_logs import pytest_runtest_makereport
from tests.support.stack import Servers, Stack
from tests.support.transports import TRANSPORTS, Transport

__all__ = ["pytest_runtest_makereport"]

COUNT: dict[Transport, int] = {"http": 200, "stream": 100}


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Postgres and NATS that no other test uses."""
    with temporary_home("chaos") as home, EmbeddedStack(home) as both:
        yield Servers(both, both)


@pytest.fixture(scope="session")
def stack(servers: Servers) -> Iterator[Stack]:
    """One stack for all accidents, with the leases of production. No service may log a fault of its own."""
    settings = {
        "WORKFLOWS_LEASE_TTL": "30s",
        "WORKFLOWS_HEARTBEAT": "3s",
        "RUNR_WORKER_RESUME_GRACE": "10s",  # workers wait for an executor that starts again, however slow the machine
    }
    made = Stack(servers, settings=settings)
    run_apart(made.__aenter__())
    try:
        yield made
        assert made.faults() == []
    finally:
        run_apart(made.close())


@pytest.fixture
def transport() -> Transport:
    """How orders are served, unless a test says otherwise."""
    return "http"


@pytest.fixture
async def orders(stack: Stack, transport: Transport) -> AsyncIterator[Orders]:
    """Many orders to be placed. Whatever the test does to them, afterwards the invariants hold."""
    await stack.revive()
    async with stack.tenant(transport) as rest, ordering(rest, COUNT[transport]) as made:
        yield made
        await invariants.check(stack.database_url, accepted=made.runs.values())


@pytest.fixture
async def sides(stack: Stack) -> AsyncIterator[Sides]:
    """The same for accidents that do not care how orders are served: two tenants, one over each transport."""
    await stack.revive()
    async with AsyncExitStack() as opened:
        rests = [await opened.enter_async_context(stack.tenant(transport)) for transport in TRANSPORTS]
        orders = [await opened.enter_async_context(ordering(rest, COUNT[rest.transport])) for rest in rests]
        made = Sides(orders)
        yield made
        await invariants.check(stack.database_url, accepted=made.runs)
