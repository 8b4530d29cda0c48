"""Learn a project's workflows from its function (engine section 3, `POST …/workflows/sync`).

The function is asked before anything is locked. What it answers replaces the list in one transaction, together with
the status that people see; a list that is refused changes nothing but that status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import asyncpg

from services.core.domain.definition import version_hash
from services.core.domain.errors import FieldError, InvalidInput
from services.core.domain.function_answer import Introspection
from services.core.domain.op import FunctionFault
from services.core.domain.safe_text import cut, storable
from services.core.domain.workflow import MAX_WORKFLOWS
from services.core.engine.archived import archived_warning, count_archived
from services.core.engine.declare import (
    Checked,
    Declared,
    DefsChanged,
    Replaced,
    Source,
    check_list,
    check_text,
    read_declared,
    replace_definitions,
)
from services.core.engine.projects import require_workflow_trigger
from services.core.engine.retrying import retrying
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project, lock_project, set_synced

SyncState = Literal["synced", "fallback", "failed"]
Ask = Callable[[], Awaitable[Introspection]]
"""One introspect request to the function. Raises FunctionFault."""

# The function was not there. One that answers nonsense, or does not know our signature, is: no file stands in for it.
_NOT_REACHED = frozenset(("FunctionUnreachable", "FunctionTimeout", "FunctionHttpError"))
_MAX_WARNINGS = 50
_MAX_TEXT_BYTES = 2048
_ROOM_FOR_COUNT = len("; and 100000 more")


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How a sync went: `synced`, `fallback` (the stored file was taken), or `failed` (nothing was changed)."""

    state: SyncState
    message: str = ""
    warnings: tuple[str, ...] = ()
    sdk: dict[str, str] | None = None
    code_version: int = 0
    """Of the worker that declared the list; 0 where the function was asked, or does not say."""

    def to_json(self) -> str:
        """The text that is stored with the project."""
        known: dict[str, Any] = {"state": self.state}
        for name in ("message", "warnings", "sdk", "code_version"):
            if getattr(self, name):
                known[name] = getattr(self, name)
        return json.dumps(known)

    @classmethod
    def from_json(cls, text: str) -> SyncStatus:
        """The status that `to_json` wrote."""
        value = json.loads(text)
        return cls(
            value["state"],
            value.get("message", ""),
            tuple(value.get("warnings", ())),
            value.get("sdk"),
            value.get("code_version", 0),
        )


WorkerOutcome = Literal["unchanged", "replaced", "older"]


@dataclass(frozen=True, slots=True)
class WorkerList:
    """What became of the list of a worker that has connected, and the names of the workflows in it."""

    outcome: WorkerOutcome
    workflows: frozenset[str]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A list to be declared, and the status to be stored with it."""

    checked: Checked
    source: Source
    status: SyncStatus


class NoEndpoint(FunctionFault):
    """There is nobody to ask: the project has no endpoint."""

    def __init__(self) -> None:
        super().__init__(
            "FunctionUnreachable",
            "the project has no endpoint: set endpoint_url (PATCH /api/projects/…/workflows/app), or connect a worker",
        )


class Syncer:
    """Syncs one project at a time, whoever asks for it."""

    def __init__(self, database: Database, defs_changed: DefsChanged, most: int = MAX_WORKFLOWS) -> None:
        """`most`: workflows of one project."""
        self._database = database
        self._defs_changed = defs_changed
        self._most = most

    async def sync(self, tenant: int, project_slug: str, ask: Ask) -> Declared:
        """Ask the function and declare what it serves; the stored file stands in for one that cannot be reached.

        The project in the answer has the status. A function that cannot be asked is a status, not an error. Raises
        InvalidInput for a list that is refused (with every fault; the status is stored), NotFound, Conflict,
        Unavailable.
        """
        async with self._database.connection() as connection:
            asked = await get_project(connection, tenant, project_slug)
        require_workflow_trigger(asked)
        try:
            declared, replaced = await self._declare_served(asked, ask)
        except InvalidInput as error:
            await self._store_refusal(asked, _refusal(error))
            raise
        if replaced.changed:
            self._defs_changed(tenant)
        return replace(declared, archived=await count_archived(self._database, tenant, replaced.gone))

    async def _declare_served(self, asked: ProjectRow, ask: Ask) -> tuple[Declared, Replaced]:
        """Declare what the function serves, or what stands in for it; what that has changed."""
        try:
            answer = await ask()
        except FunctionFault as fault:
            unreached = fault
            return await retrying(lambda _: self._stand_in(asked, unreached))
        found = _served(answer, self._most)
        return await retrying(lambda _: self._store(asked, found))

    async def accept(self, tenant: int, project_slug: str, answer: Introspection, *, code_version: int) -> WorkerList:
        """Declare the list that a worker brought along, unless it is the stored one or a newer one is (rulings S4).

        Two versions of the code are connected during a deployment: the list of the one with the lower `code_version`
        replaces nothing. Raises InvalidInput with every fault, NotFound, Conflict, Unavailable.
        """
        checked = check_list(answer.workflows, strict_unknown=False, most=self._most)
        found = _Found(checked, "worker", SyncStatus("synced", "", _warnings(checked), _sdk(answer), code_version))

        async def once(_: int) -> tuple[WorkerOutcome, Replaced]:
            async with self._database.transaction() as connection:
                project = await lock_project(connection, tenant, project_slug)
                if project.defs_hash == version_hash(checked.definitions) and project.defs_source == "worker":
                    return "unchanged", Replaced()
                stored = 0 if project.sync_status is None else SyncStatus.from_json(project.sync_status).code_version
                if project.defs_source == "worker" and stored > code_version:
                    return "older", Replaced()
                replaced = await replace_definitions(connection, project, checked.definitions, source=found.source)
                await set_synced(connection, tenant, project.id, found.status.to_json())
                return "replaced", replaced

        outcome, replaced = await retrying(once)
        if replaced.changed:
            self._defs_changed(tenant)
        archived = await count_archived(self._database, tenant, replaced.gone)
        told = tuple(_text(warning) for each in archived if (warning := archived_warning(each)))[:_MAX_WARNINGS]
        names = frozenset(definition.name for definition in checked.definitions)
        return WorkerList(outcome, names, (*told, *found.status.warnings))

    async def _store(self, asked: ProjectRow, found: _Found) -> tuple[Declared, Replaced]:
        async with self._database.transaction() as connection:
            project = await lock_project(connection, asked.tenant, asked.slug)
            return await _take(connection, project, found)

    async def _stand_in(self, asked: ProjectRow, fault: FunctionFault) -> tuple[Declared, Replaced]:
        """The function was asked in vain: the stored file takes its place, as it is now. Raises InvalidInput.

        A sync that has reached the function meanwhile knows better, and stays. So does the list that a worker brought
        to a project without an endpoint: there is nothing to sync.
        """
        async with self._database.transaction() as connection:
            project = await lock_project(connection, asked.tenant, asked.slug)
            if _reached_since(asked, project):
                return await read_declared(connection, project.tenant, project.slug), Replaced()
            if isinstance(fault, NoEndpoint) and project.defs_source == "worker":
                await _leave_to_workers(connection, project)
                return await read_declared(connection, project.tenant, project.slug), Replaced()
            if fault.name in _NOT_REACHED and project.defs_file is not None:
                return await _take(connection, project, await _filed(project.defs_file, fault, self._most))
            await set_synced(connection, project.tenant, project.id, SyncStatus("failed", _text(str(fault))).to_json())
            return await read_declared(connection, project.tenant, project.slug), Replaced()

    async def _store_refusal(self, asked: ProjectRow, message: str) -> None:
        async with self._database.transaction() as connection:
            project = await lock_project(connection, asked.tenant, asked.slug)
            await set_synced(connection, project.tenant, project.id, SyncStatus("failed", message).to_json())


async def _take(connection: asyncpg.Connection, project: ProjectRow, found: _Found) -> tuple[Declared, Replaced]:
    """Declare a list for a project that is locked, with its status."""
    replaced = await replace_definitions(connection, project, found.checked.definitions, source=found.source)
    await set_synced(connection, project.tenant, project.id, found.status.to_json())
    return await read_declared(connection, project.tenant, project.slug), replaced


async def _leave_to_workers(connection: asyncpg.Connection, project: ProjectRow) -> None:
    """Workers serve the project, which is locked: a sync of an endpoint that it had once is no fault any more."""
    stored = None if project.sync_status is None else SyncStatus.from_json(project.sync_status)
    if stored is None or stored.state != "synced":
        await set_synced(connection, project.tenant, project.id, SyncStatus("synced").to_json())


def _reached_since(asked: ProjectRow, now: ProjectRow) -> bool:
    """Whether the function has been reached by somebody since the project was read as `asked`."""
    if now.sync_status is None or (asked.synced_ms, asked.sync_status) == (now.synced_ms, now.sync_status):
        return False
    return SyncStatus.from_json(now.sync_status).state == "synced"


async def _filed(text: str, fault: FunctionFault, most: int) -> _Found:
    """The stored file. Read away from the loop: it may be as big as a request can be. Raises InvalidInput."""
    checked = await asyncio.to_thread(check_text, text, strict_unknown=False, most=most)
    return _Found(checked, "file", SyncStatus("fallback", _text(str(fault)), _warnings(checked)))


def _served(answer: Introspection, most: int) -> _Found:
    """The list that the function answered. Raises InvalidInput."""
    checked = check_list(answer.workflows, strict_unknown=False, most=most)
    if "max_ops" not in answer.capabilities:
        checked = replace(checked, warnings=(*checked.warnings, *_one_op_an_answer(checked)))
    return _Found(checked, "sync", SyncStatus("synced", "", _warnings(checked), _sdk(answer)))


def _one_op_an_answer(checked: Checked) -> list[FieldError]:
    """Checkpoints that change nothing: the function does not know that an answer may hold several ops."""
    told = "has no effect: the SDK of the function does not list the capability max_ops"
    return [
        FieldError(f"workflows[{index}].checkpoint", told)
        for index, definition in enumerate(checked.definitions)
        if definition.checkpoint is not None
    ]


def _sdk(answer: Introspection) -> dict[str, str] | None:
    sdk = {"name": answer.sdk.name, "language": answer.sdk.language, "version": answer.sdk.version}
    return {name: value for name, value in sdk.items() if value} or None


def _warnings(checked: Checked) -> tuple[str, ...]:
    texts = [_text(f"{warning.path}: {warning.message}") for warning in checked.warnings]
    left_out = len(texts) - _MAX_WARNINGS
    return (*texts[:_MAX_WARNINGS], f"and {left_out} more") if left_out > 0 else tuple(texts)


def _refusal(error: InvalidInput) -> str:
    """Why a list is refused: every fault once, as far as the room for a status goes, and how many there are more."""
    faults = [f"{fault.path}: {fault.message}" if fault.path else fault.message for fault in error.errors]
    told = "the list is refused: "
    for index, fault in enumerate(faults or [error.message]):
        more = _text(f"{'; ' if index else ''}{fault}")
        if index and len(f"{told}{more}".encode()) > _MAX_TEXT_BYTES - _ROOM_FOR_COUNT:
            return f"{told}; and {len(faults) - index} more"
        told += more
    return _text(told)


def _text(text: str) -> str:
    return cut(storable(text), _MAX_TEXT_BYTES)
