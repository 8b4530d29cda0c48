"""How a fresh stack is entered: its first tenant, first project and first token. Safe to call from every process."""

from __future__ import annotations

from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.retrying import retrying
from services.core.engine.signing_keys import require_encryption_key
from services.core.engine.tokens import ALL_ABILITIES, hash_token
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant, lock_bootstrap, put_bootstrap_token
from services.core.store.database import Database
from services.core.store.projects import has_projects

DEFAULT_TENANT = "default"
DEFAULT_PROJECT = "default"


async def ensure_bootstrap(database: Database, sealer: Sealer, token: str | None) -> int:
    """The id of the default tenant, which has a project, and in which `token` may do everything.

    Another `token` than before replaces it; without one, none is made and one that is there stays. Raises Unavailable,
    and SealBroken when the database belongs to another encryption key.
    """
    # Waiting for another process that is at it may take longer than a lock may be waited for.
    return await retrying(lambda _: _once(database, sealer, token))


async def _once(database: Database, sealer: Sealer, token: str | None) -> int:
    async with database.transaction() as connection:
        await lock_bootstrap(connection)
        await require_encryption_key(connection, sealer)
        tenant = await create_tenant(connection, DEFAULT_TENANT, "Default")
        if not await has_projects(connection, tenant):
            await create_project(connection, sealer, tenant, DEFAULT_PROJECT, ProjectChange(name="Default"))
        if token:
            await put_bootstrap_token(connection, tenant, hash_token(token), ALL_ABILITIES)
    return tenant
