"""Delete a project: nothing starts or goes on again, what runs is cancelled, then all of it goes (engine section 3).

Each part is a transaction of its own and may be done again, so a deletion that was cut off is finished by asking for it
again. The first part cannot be taken back: from its commit on, whoever makes runs or lets ended ones go on refuses
those of this project (`rt.start_v1`, `rt.retry_v1`), and nobody declares or changes anything in it. Until the last part
the project is still there to be read, with all its workflows archived.
"""

from __future__ import annotations

import asyncio
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
    begin_delete,
    delete_project,
    delete_some_runs,
    has_runs,
    lock_active_runs,
    lock_project,
    workflow_ids,
    writers,
)
from services.core.store.queries import queries
from services.core.store.workflows import archive_all, bump_definitions

_BATCH = 500
_LOOK_AGAIN_S = 0.05
_WRITERS_S = 10.0


class ProjectDeleter:
    """Deletes projects in batches that hold no lock for long."""

    def __init__(self, database: Database, hints: Hints, defs_changed: DefsChanged) -> None:
        self._database = database
        self._hints = hints
        self._defs_changed = defs_changed

    async def delete(self, caller: Caller, slug: str) -> None:
        """Delete a project of the caller's tenant with its workflows and runs. Raises NotFound, Unavailable."""
        project = await retrying(lambda _: self._begin(caller.tenant, slug))
        self._defs_changed(caller.tenant)
        await self._wait_for_writers()
        while await retrying(lambda _: self._cancel_some(project)):
            pass
        while await retrying(lambda _: self._delete_some(project)):
            pass
        await retrying(lambda attempt: self._delete_rest(caller, project, again=attempt > 0))
        self._defs_changed(caller.tenant)

    async def _begin(self, tenant: int, slug: str) -> ProjectRow:
        async with self._database.transaction() as connection:
            project = await lock_project(connection, tenant, slug, even_deleted=True)
            await begin_delete(connection, tenant, project.id)
            await archive_all(connection, tenant, project.id)
            await bump_definitions(connection, tenant)
        return project

    async def _wait_for_writers(self) -> None:
        """Who asked before the beginning was committed whether it may make runs is still at it: wait for its end."""
        try:
            async with asyncio.timeout(_WRITERS_S):
                async with self._database.connection() as connection:
                    before = await writers(connection)
                while before:
                    await asyncio.sleep(_LOOK_AGAIN_S)
                    async with self._database.connection() as connection:
                        before &= await writers(connection)
        except TimeoutError:
            raise Unavailable("older transactions are still open; the deletion has begun, ask for it again") from None

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
                held = await lock_project(connection, project.tenant, project.slug, even_deleted=True)
            except NotFound:
                if again:
                    return  # the answer of the attempt before was lost after its commit
                raise
            if held.id != project.id:
                return
            if await has_runs(connection, project.tenant, await workflow_ids(connection, project.tenant, project.id)):
                raise Unavailable("runs of the project are left; ask for the deletion again")
            await delete_project(connection, project.tenant, project.id)
            await bump_definitions(connection, project.tenant)
            await write_audit(
                connection, tenant=project.tenant, actor=actor_of(caller), action="project.delete", subject=project.slug
            )
