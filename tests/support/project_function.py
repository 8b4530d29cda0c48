"""A project's function over a real connection, and what the engine has learnt from it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.core.domain.caller import Caller
from services.core.domain.endpoint import EndpointPolicy
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.sync import SyncStatus
from services.core.runtime.clock import SystemClock
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import FunctionSettings
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project
from services.core.store.workflows import workflows_of
from services.executor.function_client import HttpFunctionClient
from services.executor.project_function import Lookup, ProjectFunctions, system_lookup
from tests.support.fake_function import FakeFunction

PRIVATE = FunctionSettings(allow_private=True, connect_timeout_s=2.0)


@pytest.fixture
async def client() -> AsyncIterator[HttpFunctionClient]:
    async with HttpFunctionClient(
        policy=EndpointPolicy(allow_private=True), unix_seconds=lambda: int(time.time()), version="9.9"
    ) as client:
        yield client


@pytest.fixture
def functions(database: Database, sealer: Sealer, client: HttpFunctionClient) -> ProjectFunctions:
    return make(database, sealer, client)


def make(
    database: Database,
    sealer: Sealer,
    client: HttpFunctionClient,
    settings: FunctionSettings = PRIVATE,
    lookup: Lookup = system_lookup,
    public_url: str = "",
) -> ProjectFunctions:
    return ProjectFunctions(
        database=database,
        definitions=DefinitionsCache(sealer),
        sealer=sealer,
        client=client,
        settings=settings,
        clock=SystemClock(),
        defs_changed=lambda _: None,
        lookup=lookup,
        public_url=public_url,
    )


@pytest.fixture
def caller(tenant: int) -> Caller:
    return Caller(tenant=tenant, token_id="t1", abilities=frozenset())


async def key_of(functions: ProjectFunctions, caller: Caller) -> str:
    return (await functions.reveal_key(caller, "default")).current


async def project_of(database: Database, tenant: int) -> ProjectRow:
    async with database.connection() as connection:
        return await get_project(connection, tenant, "default")


async def status_of(database: Database, tenant: int) -> SyncStatus:
    text = (await project_of(database, tenant)).sync_status
    assert text is not None
    return SyncStatus.from_json(text)


async def declared(database: Database, tenant: int) -> list[str]:
    project = await project_of(database, tenant)
    async with database.connection() as connection:
        rows = await workflows_of(connection, tenant, project.id)
    return [row.name for row in rows if row.archived_ms is None]


def serving(key: str, *definitions: dict[str, Any]) -> FakeFunction:
    return FakeFunction(key=key, definitions=definitions)
