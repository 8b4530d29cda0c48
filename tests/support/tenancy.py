"""A database with its first tenant, project and token, as a fresh stack has it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.core.engine.bootstrap import ensure_bootstrap
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database

ENCRYPTION_KEY = bytes(range(32))
BOOTSTRAP_TOKEN = "runr_test_bootstrap_token"


@pytest.fixture
def sealer() -> Sealer:
    """Seals and opens with the key of the tests."""
    return Sealer(ENCRYPTION_KEY)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    """An open pool on a database of this test's own."""
    pool = Database(postgres_url, name="test", size=8)
    await pool.open()
    yield pool
    await pool.close()


@pytest.fixture
async def tenant(database: Database, sealer: Sealer) -> int:
    """The default tenant, with the project `default` and the bootstrap token."""
    return await ensure_bootstrap(database, sealer, BOOTSTRAP_TOKEN)
