"""Delete a project: nothing starts any more, what runs is cancelled, then everything of it goes (engine section 3).

Each part is a transaction of its own and may be done again, so a deletion that was cut off is finished by asking for it
again. Until its last transaction the project is still there, with all its workflows archived.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from uuid import UUID

from services.core.domain.caller import Caller
from services.core.domain.errors import NotFound, Unavailable
from services.core.engine.declare import DefsChanged
from services.core.engine.hints import Hints
from services.core.engine.retrying import retrying
from services.core.engine.tokens import actor_of
from services.core.store.access import write_audit
from services.core.store.database import Database
from services.core.store.projects import (
    ProjectRow,
    active_runs,
    delete_project,
    delete_some_runs,
    lock_active_runs,
    lock_project,
    older_transactions,
    server_clock,
    workflow_ids,
)
from services.core.store.queries import queries
from services.core.store.workflows import archive_all, bump_definitions

_BATCH = 500
_LOOK_AGAIN_S = 0.05
_OLDER_S = 10.0


class ProjectDeleter:
    """Deletes projects in batches that hold no lock for long."""

    def __init__(self, database: Database, hints: Hints, defs_changed: DefsChanged) -> None:
        self._database = database
        self._hints = hints
        self._defs_changed = defs_changed

    async def delete(self, caller: Caller, slug: str) -> None:
        """Delete a project of the caller's tenant with its workflows and runs. Raises NotFound, Unavailable."""
        project, archived_at = await retrying(lambda _: self._archive(caller.tenant, slug))
        self._defs_changed(caller.tenant)
        await self._wait_for_starts(archived_at)
        while await retrying(lambda _: self._cancel_some(project)):
            pass
        while await retrying(lambda _: self._delete_some(project)):
            pass
        await retrying(lambda attempt: self._delete_rest(caller, project, again=attempt > 0))
        self._defs_changed(caller.tenant)

    async def _archive(self, tenant: int, slug: str) -> tuple[ProjectRow, datetime]:
        async with self._database.transaction() as connection:
            project = await lock_project(connection, tenant, slug)
            await archive_all(connection, tenant, project.id)
            await bump_definitions(connection, tenant)
        async with self._database.connection() as connection:
            return project, await server_clock(connection)

    async def _wait_for_starts(self, archived_at: datetime) -> None:
        """A transaction that read the definitions before they changed may still start a run: wait for its end."""
        try:
            async with asyncio.timeout(_OLDER_S):
                while True:
                    async with self._database.connection() as connection:
                        if not await older_transactions(connection, archived_at):
                            return
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise Unavailable("older transactions are still open; the project is archived, delete it again") from None

    async def _cancel_some(self, project: ProjectRow) -> bool:
        cancelled: dict[int, list[UUID]] = {}
        async with self._database.transaction() as connection:
            workflows = await workflow_ids(connection, project.tenant, project.id)
            active = await active_runs(connection, project.tenant, workflows, limit=_BATCH)
            held = await lock_active_runs(connection, project.tenant, active)
            count = len(held)
            statement = queries("engine")["finish"]
            for row in await connection.fetch(statement, held, ["cancelled"] * count, [None] * count, [None] * count):
                if row["owner"] is not None:
                    cancelled.setdefault(row["owner"], []).append(UUID(int=row["run"].int))
        for owner, runs in cancelled.items():
            self._hints.cancelled(owner, runs)
        return bool(active)

    async def _delete_some(self, project: ProjectRow) -> bool:
        async with self._database.transaction() as connection:
            workflows = await workflow_ids(connection, project.tenant, project.id)
            return bool(await delete_some_runs(connection, project.tenant, workflows, limit=_BATCH))

    async def _delete_rest(self, caller: Caller, project: ProjectRow, *, again: bool) -> None:
        async with self._database.transaction() as connection:
            try:
                held = await lock_project(connection, project.tenant, project.slug)
            except NotFound:
                if again:
                    return  # the answer of the attempt before was lost after its commit
                raise
            if held.id != project.id:
                return
            await delete_project(connection, project.tenant, project.id)
            await bump_definitions(connection, project.tenant)
            await write_audit(
                connection, tenant=project.tenant, actor=actor_of(caller), action="project.delete", subject=project.slug
            )
