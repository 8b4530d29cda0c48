"""One stack for all stories, a tenant of its own for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from services.embedded.stack import EmbeddedStack
from tests.support import invariants
from tests.support.postgres import run_apart
from tests.support.rest import Rest
from tests.support.service_logs import pytest_runtest_makereport
from tests.support.stack import Servers, Stack
from tests.support.transports import TRANSPORTS, Transport

__all__ = ["pytest_runtest_makereport"]

# What a story brings about on purpose.
MEANT = "the drain did not end in time"
SHOWN = 5


@pytest.fixture(scope="package")
def stack(postgres_stack: EmbeddedStack, nats_stack: EmbeddedStack) -> Iterator[Stack]:
    """The stack, which ends with the stories, as it works also while nobody asks it for anything. At its end the
    invariants must hold, and no service may have logged a fault of its own, or a secret."""
    settings = {
        "RUNR_WORKER_RESUME_GRACE": "20s",  # workers wait for an executor that starts again, however slow the machine
    }
    made = Stack(Servers(postgres_stack, nats_stack), settings=settings)
    run_apart(made.__aenter__())
    try:
        yield made
        run_apart(invariants.check(made.database_url))
        faults = [fault for fault in made.faults() if fault["message"] != MEANT]
        assert not faults, "\n".join(map(str, faults[:SHOWN]))
        assert not made.leaks(), "\n".join(made.leaks()[:SHOWN])
    finally:
        run_apart(made.close())


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    """How the code of a story and the engine reach one another. A story is told over each, or says why not."""
    chosen: Transport = request.param
    return chosen


@pytest.fixture
async def rest(stack: Stack, transport: Transport) -> AsyncIterator[Rest]:
    """A client in a new tenant, whose project `default` has no code yet."""
    if not stack.stands:
        await stack.revive()
    async with stack.tenant(transport) as client:
        yield client
