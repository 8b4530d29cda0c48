"""The keys that sign for a project's function: rotated, kept for a while, and who looked at them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.core.domain.caller import Caller
from services.core.domain.queue_token import queue_token
from services.core.engine.projects import ProjectChange, update_project
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.executor.function_client import HttpFunctionClient
from services.executor.project_function import ProjectFunctions
from tests.support.project_function import PRIVATE, caller, client, functions, key_of, make, serving, status_of
from tests.support.tenancy import database, sealer, tenant

__all__ = ["caller", "client", "database", "functions", "sealer", "tenant"]


async def test_the_key_before_signs_along_until_the_function_has_the_new_one(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    old = await key_of(functions, caller)
    async with serving(old, {"name": "ship"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
        before = await functions.app(tenant, "default")
        rotated = await functions.rotate_key(caller, "default")
        assert rotated.project.key_print != before.project.key_print
        assert rotated.previous_fingerprint == before.project.key_print
        assert rotated.previous_until_ms is not None
        await functions.sync(tenant, "default")
        assert (await status_of(database, tenant)).state == "synced"
        keys = await functions.reveal_key(caller, "default")
        assert keys.previous == old
        function.key = keys.current
        await functions.sync(tenant, "default")
        assert (await status_of(database, tenant)).state == "synced"
        # A second rotation drops the first key: one key before the current one signs along, not all of history.
        await functions.rotate_key(caller, "default")
        function.key = old
        await functions.sync(tenant, "default")
    assert (await status_of(database, tenant)).state == "failed"


async def test_a_key_of_the_past_stops_signing_after_the_grace(
    database: Database, sealer: Sealer, client: HttpFunctionClient, caller: Caller, tenant: int
) -> None:
    functions = make(database, sealer, client, replace(PRIVATE, key_rotation_grace_ms=0))
    await functions.rotate_key(caller, "default")
    view = await functions.app(tenant, "default")
    assert (view.previous_fingerprint, view.previous_until_ms) == (None, None)
    assert (await functions.reveal_key(caller, "default")).previous is None


async def test_revealing_and_rotating_are_audited(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    key = await key_of(functions, caller)
    await functions.rotate_key(caller, "default")
    async with database.connection() as connection:
        rows = await connection.fetch(
            "select tenant, actor, action, subject, a::text as row from rt.audit a order by id"
        )
    assert [(row["actor"], row["action"], row["subject"]) for row in rows] == [
        ("token:t1", "signing_key.reveal", "default"),
        ("token:t1", "signing_key.rotate", "default"),
    ]
    assert all(key not in row["row"] for row in rows)


@pytest.mark.parametrize("base", ["https://api.example.com", ""])
async def test_the_address_of_the_queue_bridge_is_below_the_public_url_or_the_gateways_to_complete(
    base: str, database: Database, sealer: Sealer, client: HttpFunctionClient, caller: Caller, tenant: int
) -> None:
    functions = make(database, sealer, client, public_url=base)
    assert (await functions.app(tenant, "default")).queue_bridge_url is None
    token = queue_token(await key_of(functions, caller), "default", "payments")
    for stream, shown in (
        ("payments", f"{base}/api/internal/workflows/queue/default/default/{token}"),
        ("nats:payments", None),
    ):
        async with database.transaction() as connection:
            await update_project(connection, sealer, tenant, "default", ProjectChange(queue_stream=stream))
        assert (await functions.app(tenant, "default")).queue_bridge_url == shown
