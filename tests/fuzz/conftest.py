"""The engine as a stranger meets it: one tenant that sends anything, beside one whose data must stay its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from services.embedded.stack import EmbeddedStack
from tests.support import invariants
from tests.support.postgres import run_apart
from tests.support.rest import Rest
from tests.support.stack import Servers, Stack

SHOWN = 5
LOST = "an acknowledged run is lost"


@dataclass
class Stage:
    """A running stack. `token` is of the tenant that sends anything; `known` are texts that name something there, or in
    the other tenant, by what they name. The other tenant's data hold the `canary`, which is never sent.
    """

    stack: Stack
    canary: str = field(default_factory=lambda: f"canary{secrets.token_hex(8)}")
    token: str = ""
    known: dict[str, list[str]] = field(default_factory=dict)

    def check(self, *told: bytes) -> None:
        """Raises where something that was told holds the other tenant's data."""
        assert not any(self.canary.encode() in text for text in told), told

    async def prepare(self) -> None:
        """Fill both tenants."""
        async with AsyncExitStack() as exits:
            ours = await exits.enter_async_context(self.stack.tenant())
            theirs = await exits.enter_async_context(self.stack.tenant())
            self.token = ours.token
            own, foreign = await _filled(ours, "plain"), await _filled(theirs, self.canary)
            self.known = {at: [*texts * 3, *foreign[at]] for at, texts in own.items()}


async def _filled(rest: Rest, mark: str) -> dict[str, list[str]]:
    """Workflows, runs, events and a token with a mark in them; what names them."""
    triggers = [{"cron": "0 6 * * *"}, {"event": "go"}]
    definition = {"name": "work", "description": mark, "triggers": triggers}
    await rest.ok("PUT", "/projects/default/workflows", {"workflows": [definition]})
    run = await rest.start("work", {"mark": mark}, tags=[mark])
    sent = await rest.send("go", {"mark": mark})
    token = await rest.ok("POST", "/tokens", {"name": mark})
    await rest.ok("POST", f"/runs/{run}/cancel")
    return {
        "project": ["default"],
        "workflow": ["work"],
        "trigger": ["0"],
        "tenant": [rest.tenant],
        "run_id": [run, *sent["runs"]],
        "event_id": [sent["id"]],
        "token_id": [token["id"]],
    }


@pytest.fixture(scope="package")
def stage(postgres_stack: EmbeddedStack, nats_stack: EmbeddedStack) -> Iterator[Stage]:
    """The stage. At its end the invariants must hold and no service may have logged a fault of its own."""
    # Endpoints of functions lead anywhere: nobody waits long for one.
    made = Stage(Stack(Servers(postgres_stack, nats_stack), settings={"WORKFLOWS_REQUEST_TIMEOUT": "3s"}))
    run_apart(made.stack.__aenter__())
    try:
        run_apart(made.prepare())
        yield made
        broken = run_apart(invariants.violations(made.stack.database_url))
        # Projects are deleted, and their runs with them.
        assert not [line for line in broken if LOST not in line]
        faults = made.stack.faults()
        assert not faults, "\n".join(map(str, faults[:SHOWN]))
    finally:
        run_apart(made.stack.close())
