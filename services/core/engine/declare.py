"""Declare the workflows of a project: the whole list at once, or none of it (engine section 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import asyncpg

from services.core.domain.definition import Definition, definition_from_json, definition_to_json, version_hash
from services.core.domain.errors import FieldError, InvalidInput, NotFound
from services.core.domain.gate_rule import gate_rule
from services.core.domain.json_text import parse
from services.core.domain.workflow import MAX_WORKFLOWS, definitions_list, validate_definitions
from services.core.domain.workflow_record import ArchivedRecord, WorkflowRecord
from services.core.engine.archived import count_archived
from services.core.engine.projects import require_workflow_trigger
from services.core.engine.retrying import retrying
from services.core.engine.schedules import keep_schedules
from services.core.store.database import Database
from services.core.store.gate_rules import put_gate_rules
from services.core.store.projects import ProjectRow, get_project, lock_project, set_declared, set_definitions_file
from services.core.store.workflows import (
    WorkflowRow,
    archive_workflows,
    bump_definitions,
    get_workflow,
    put_workflows,
    set_active,
    workflows_of,
)

Source = Literal["api", "sync", "file", "worker"]
DefsChanged = Callable[[int], None]
"""Tells that the definitions of a tenant have changed: a hint, given after the commit."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A list that may be declared, and what was passed over in it."""

    definitions: tuple[Definition, ...]
    warnings: tuple[FieldError, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """A project and all its workflows by name, archived ones included. `archived`: those that were so just now."""

    project: ProjectRow
    workflows: list[WorkflowRow]
    archived: tuple[ArchivedRecord, ...] = ()

    def records(self) -> list[WorkflowRecord]:
        """The workflows as callers see them."""
        return [workflow_record(self.project, row) for row in self.workflows]


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a list has changed: whether anything, and which workflows it has archived, names by id."""

    changed: bool = False
    gone: Mapping[int, str] = field(default_factory=dict)


class Declarer:
    """Declares, pauses and resumes workflows: one transaction each, then a hint."""

    def __init__(self, database: Database, defs_changed: DefsChanged, most: int = MAX_WORKFLOWS) -> None:
        """`most`: workflows of one project."""
        self._database = database
        self._defs_changed = defs_changed
        self._most = most

    async def declare(self, tenant: int, project_slug: str, body: bytes, *, source: Source = "api") -> Declared:
        """Replace the project's list by the one in `body`, JSON of `{"workflows": [...]}`.

        Raises InvalidInput with every fault, NotFound, Conflict for a project that serves no workflows, Unavailable.
        """
        checked = await self._check(body, strict_unknown=True)

        async def once(_: int) -> tuple[Declared, Replaced]:
            async with self._database.transaction() as connection:
                project = await lock_project(connection, tenant, project_slug)
                replaced = await replace_definitions(connection, project, checked.definitions, source=source)
                return await read_declared(connection, tenant, project_slug), replaced

        declared, replaced = await retrying(once)
        if replaced.changed:
            self._defs_changed(tenant)
        return replace(declared, archived=await count_archived(self._database, tenant, replaced.gone))

    async def store_file(self, tenant: int, project_slug: str, body: bytes) -> Checked:
        """Store the list that a sync falls back to. Raises as `declare`, but unknown fields are warnings."""
        checked = await self._check(body, strict_unknown=False)
        async with self._database.transaction() as connection:
            project = await lock_project(connection, tenant, project_slug)
            require_workflow_trigger(project)
            await set_definitions_file(connection, tenant, project.id, body.decode())
        return checked

    async def _check(self, body: bytes, *, strict_unknown: bool) -> Checked:
        # Away from the loop: a list may be as big as a request can be.
        return await asyncio.to_thread(check_text, body, strict_unknown=strict_unknown, most=self._most)

    async def set_active(self, tenant: int, project_slug: str, workflow: str, is_active: bool) -> Declared:
        """Pause a workflow, or let it go on; doing it twice changes nothing. The answer holds this workflow alone.

        Raises NotFound, Unavailable.
        """

        async def once(_: int) -> tuple[Declared, bool]:
            async with self._database.transaction() as connection:
                project = await lock_project(connection, tenant, project_slug)
                row = await find_workflow(connection, project, workflow)
                changed = row.is_active != is_active
                if changed:
                    await set_active(connection, tenant, row.id, is_active)
                    row = await find_workflow(connection, project, workflow)
                    await keep_schedules(connection, tenant, [row])
                    await bump_definitions(connection, tenant)
                return Declared(project, [row]), changed

        declared, changed = await retrying(once)
        if changed:
            self._defs_changed(tenant)
        return declared


def check_text(body: bytes | str, *, strict_unknown: bool, most: int = MAX_WORKFLOWS) -> Checked:
    """The list in a JSON text: the list itself, or `{"workflows": [...]}`. Raises InvalidInput with every fault."""
    value, around = definitions_list(parse(body))
    faults = around if strict_unknown else []
    try:
        checked = check_list(value, strict_unknown=strict_unknown, most=most)
    except InvalidInput as error:
        raise InvalidInput.of_all([*faults, *error.errors]) from None
    if faults:
        raise InvalidInput.of_all(faults)
    return Checked(checked.definitions, (*around, *checked.warnings))


def check_list(value: object, *, strict_unknown: bool, most: int = MAX_WORKFLOWS) -> Checked:
    """The definitions of a decoded list of at most `most`. Raises InvalidInput with every fault."""
    definitions, warnings = validate_definitions(value, strict_unknown=strict_unknown, most=most)
    return Checked(tuple(definitions), tuple(warnings))


async def replace_definitions(
    connection: asyncpg.Connection, project: ProjectRow, definitions: Sequence[Definition], *, source: Source
) -> Replaced:
    """Make these the project's workflows, in the caller's transaction, which holds the project's row.

    What is not among them is archived, what is among them again is un-archived; paused stays paused. A list that is
    declared again as it is changes nothing and moves no version. Raises Conflict for a project that serves none.
    """
    require_workflow_trigger(project)
    before = {row.name: row for row in await workflows_of(connection, project.tenant, project.id)}
    wanted = {definition.name: definition_to_json(definition) for definition in definitions}
    changed = {name: text for name, text in wanted.items() if _differs(before.get(name), text)}
    gone = {row.id: row.name for row in before.values() if row.archived_ms is None and row.name not in wanted}
    if changed:
        await put_workflows(connection, project.tenant, project.id, changed)
    if gone:
        await archive_workflows(connection, project.tenant, list(gone))
    if changed or gone:
        after = await workflows_of(connection, project.tenant, project.id)
        await keep_schedules(
            connection, project.tenant, [row for row in after if row.name in changed or row.id in gone]
        )
        limits = {definition.name: definition.concurrency for definition in definitions if definition.name in changed}
        rules = {row.id: gate_rule(limits[row.name]) for row in after if row.name in limits}
        await put_gate_rules(connection, project.tenant, rules)
        await bump_definitions(connection, project.tenant)
    await set_declared(connection, project.tenant, project.id, version=version_hash(definitions), source=source)
    return Replaced(bool(changed or gone), gone)


async def read_declared(connection: asyncpg.Connection, tenant: int, project_slug: str) -> Declared:
    """A project with all its workflows. Raises NotFound."""
    project = await get_project(connection, tenant, project_slug)
    return Declared(project, await workflows_of(connection, tenant, project.id))


async def find_workflow(connection: asyncpg.Connection, project: ProjectRow, name: str) -> WorkflowRow:
    """One workflow of a project. Raises NotFound."""
    row = await get_workflow(connection, project.tenant, project.id, name)
    if row is None:
        raise NotFound(f"project {project.slug} has no workflow {name[:100]}")
    return row


def workflow_record(project: ProjectRow, row: WorkflowRow) -> WorkflowRecord:
    """A workflow as callers see it."""
    return WorkflowRecord(
        name=row.name,
        project=project.slug,
        definition=row.definition,
        version=version_hash([definition_from_json(row.definition)]),
        is_active=row.is_active,
        archived_ms=row.archived_ms,
        source=project.defs_source or "",
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
    )


def _differs(row: WorkflowRow | None, text: str) -> bool:
    return row is None or row.archived_ms is not None or row.definition != text
