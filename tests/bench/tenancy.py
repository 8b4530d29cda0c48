"""More tenants than the one that the API knows, for what many of them do to one another."""

from __future__ import annotations

import base64
import random
import secrets

from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.tokens import ALL_ABILITIES, hash_token
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant, insert_token
from services.embedded.home import Home
from tests.bench.lean_client import LeanClient
from tests.bench.stack import BenchStack

WORKFLOWS = "/api/projects/default/workflows"


async def new_tenants(stack: BenchStack, count: int) -> list[LeanClient]:
    """Clients with all permissions, each in a tenant of its own, whose project `default` has the workflow `accept`."""
    sealer = Sealer(base64.b64decode(Home(stack.home).key("encryption")))
    ids = UlidFactory(SystemClock(), random.Random())
    callers = []
    for number in range(count):
        token = f"rt_{secrets.token_urlsafe(24)}"
        async with stack.database.transaction():
            tenant = await create_tenant(stack.database, f"bench-{number}", "")
            await create_project(stack.database, sealer, tenant, "default", ProjectChange())
            await insert_token(
                stack.database,
                id=ids.new(),
                tenant=tenant,
                name="bench",
                token_hash=hash_token(token),
                abilities=ALL_ABILITIES,
                expires_ms=None,
            )
        caller = stack.client.as_caller(token)
        await caller.call(
            "PUT", WORKFLOWS, {"workflows": [{"name": "accept", "triggers": [{"event": "bench.accept"}]}]}
        )
        callers.append(caller)
    return callers
