"""Make and change projects (engine section 3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import asyncpg

from services.core.domain.errors import Conflict, FieldError, InvalidInput
from services.core.domain.queue_message import queue_stream_fault
from services.core.domain.safe_text import is_storable, utf8_size
from services.core.engine.signing_keys import NewKey, new_key
from services.core.runtime.sealing import Sealer
from services.core.store.projects import (
    ProjectRow,
    get_project,
    insert_project,
    lock_project,
    next_project_id,
    set_key,
    update_config,
)
from services.core.store.workflows import bump_definitions, page_of_workflows

TRIGGER_TYPES = ("http", "schedule", "queue", "workflow")
"""What a project may serve. Only `workflow` has a signing key and definitions."""

_MAX_NAME_BYTES = 200
_slug = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectChange:
    """What a caller wants a project to be. None leaves a thing as it is; an empty `queue_stream` removes the stream."""

    name: str | None = None
    trigger_type: str | None = None
    queue_stream: str | None = None


async def create_project(
    connection: asyncpg.Connection, sealer: Sealer, tenant: int, slug: str, change: ProjectChange
) -> ProjectRow:
    """Make a project in the caller's transaction. Raises InvalidInput, Conflict when the slug is taken."""
    faults = _faults(change)
    if not _slug(slug):
        allowed = "must be 1 to 63 of a-z, 0-9 and -, neither beginning nor ending with -"
        faults.insert(0, FieldError("slug", f"{allowed}, not {slug[:80]!r}"))
    if faults:
        raise InvalidInput.of_all(faults)
    id = await next_project_id(connection)
    trigger_type = change.trigger_type or "workflow"
    key = new_key(sealer, tenant, id) if trigger_type == "workflow" else None
    await insert_project(
        connection,
        tenant,
        id=id,
        slug=slug,
        name=change.name or slug,
        trigger_type=trigger_type,
        queue_stream=change.queue_stream or None,
        signing_key=key.sealed if key else None,
        key_print=key.fingerprint if key else None,
    )
    await bump_definitions(connection, tenant)
    return await get_project(connection, tenant, slug)


async def update_project(
    connection: asyncpg.Connection, sealer: Sealer, tenant: int, slug: str, change: ProjectChange
) -> ProjectRow:
    """Change a project in the caller's transaction. Raises InvalidInput, NotFound, and Conflict as long as a project
    that is to serve something else has declared workflows."""
    project = await lock_project(connection, tenant, slug)
    faults = _faults(change)
    if faults:
        raise InvalidInput.of_all(faults)
    trigger_type = change.trigger_type or project.trigger_type
    if trigger_type != "workflow" and project.trigger_type == "workflow":
        await _refuse_declared(connection, project)
    if trigger_type == "workflow" and project.signing_key is None:
        key: NewKey = new_key(sealer, tenant, project.id)
        await set_key(connection, tenant, project.id, key.sealed, key.fingerprint, rotate=False)
    await update_config(
        connection,
        tenant,
        project.id,
        name=project.name if change.name is None else change.name or slug,
        trigger_type=trigger_type,
        queue_stream=project.queue_stream if change.queue_stream is None else change.queue_stream or None,
    )
    await bump_definitions(connection, tenant)
    return await get_project(connection, tenant, slug)


def require_workflow_trigger(project: ProjectRow) -> None:
    """Raises Conflict unless the project serves workflows."""
    if project.trigger_type != "workflow":
        raise Conflict(
            f"project {project.slug} has the trigger type {project.trigger_type}: only workflow serves workflows",
            reason="NOT_A_WORKFLOW_PROJECT",
        )


async def _refuse_declared(connection: asyncpg.Connection, project: ProjectRow) -> None:
    declared = await page_of_workflows(connection, project.tenant, project.id, after=None, archived=False, limit=1)
    if declared:
        raise Conflict(
            f"project {project.slug} serves workflows, {declared[0].name} among them: declare an empty list first",
            reason="WORKFLOWS_DECLARED",
        )


def _faults(change: ProjectChange) -> list[FieldError]:
    faults = []
    if change.name is not None and (not is_storable(change.name) or utf8_size(change.name) > _MAX_NAME_BYTES):
        faults.append(FieldError("name", f"must be at most {_MAX_NAME_BYTES} bytes without NUL"))
    if change.trigger_type is not None and change.trigger_type not in TRIGGER_TYPES:
        allowed = ", ".join(TRIGGER_TYPES)
        hint = ": events reach workflows through POST /api/events" if change.trigger_type == "event" else ""
        faults.append(
            FieldError("config.trigger_type", f"must be one of {allowed}, not {change.trigger_type[:40]!r}{hint}")
        )
    fault = queue_stream_fault(change.queue_stream) if change.queue_stream else None
    if fault:
        faults.append(FieldError("config.queue_stream", fault))
    return faults
