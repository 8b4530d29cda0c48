"""A stack with servers of its own, so that they can be taken away from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator

import pytest

from services.embedded.stack import EmbeddedStack
from tests.support import invariants
from tests.support.homes import temporary_home
from tests.support.orders import Orders, ordering
from tests.support.postgres import run_apart
from tests.support.stack import Servers, Stack

COUNT = 200


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Postgres and NATS that no other test uses."""
    with temporary_home("chaos") as home, EmbeddedStack(home) as both:
        yield Servers(both, both)


@pytest.fixture(scope="session")
def stack(servers: Servers) -> Iterator[Stack]:
    """One stack for all accidents, with the leases of production. No service may log a fault of its own."""
    leases = {"WORKFLOWS_LEASE_TTL": "30s", "WORKFLOWS_HEARTBEAT": "3s"}
    made = Stack(servers, settings=leases)
    run_apart(made.__aenter__())
    try:
        yield made
        assert made.faults() == []
    finally:
        run_apart(made.close())


@pytest.fixture
async def orders(stack: Stack) -> AsyncIterator[Orders]:
    """Two hundred orders to be placed. Whatever the test does to them, afterwards the invariants hold."""
    await stack.revive()
    async with stack.tenant() as rest, ordering(rest, COUNT) as made:
        yield made
        await invariants.check(stack.database_url, accepted=made.runs.values())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the services logged."""
    report = yield
    stack = item.funcargs.get("stack")
    if report.failed and isinstance(stack, Stack):
        report.sections.append(("services", stack.log_tails()))
    return report
