"""Learn a project's workflows from its function (engine section 3, `POST …/workflows/sync`).

The function is asked before anything is locked. What it answers replaces the list in one transaction, together with
the status that people see; a list that is refused changes nothing but that status.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from services.core.domain.errors import InvalidInput
from services.core.domain.function_answer import Introspection
from services.core.domain.op import FunctionFault
from services.core.domain.safe_text import cut, storable
from services.core.domain.workflow import MAX_WORKFLOWS
from services.core.engine.declare import (
    Checked,
    Declared,
    DefsChanged,
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


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How a sync went: `synced`, `fallback` (the stored file was taken), or `failed` (nothing was changed)."""

    state: SyncState
    message: str = ""
    warnings: tuple[str, ...] = ()
    sdk: dict[str, str] | None = None

    def to_json(self) -> str:
        """The text that is stored with the project."""
        known: dict[str, Any] = {"state": self.state}
        for name in ("message", "warnings", "sdk"):
            if getattr(self, name):
                known[name] = getattr(self, name)
        return json.dumps(known)

    @classmethod
    def from_json(cls, text: str) -> SyncStatus:
        """The status that `to_json` wrote."""
        value = json.loads(text)
        return cls(value["state"], value.get("message", ""), tuple(value.get("warnings", ())), value.get("sdk"))


@dataclass(frozen=True, slots=True)
class _Found:
    """A list to be declared, and the status to be stored with it."""

    checked: Checked
    source: Source
    status: SyncStatus


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
            project = await get_project(connection, tenant, project_slug)
        require_workflow_trigger(project)
        try:
            found = await _find(project, ask, self._most)
        except FunctionFault as fault:
            return await self._store_failure(tenant, project_slug, _text(str(fault)))
        except InvalidInput as error:
            await self._store_failure(tenant, project_slug, _text(f"the list is refused: {error.message}"))
            raise
        declared, changed = await retrying(lambda _: self._store(tenant, project_slug, found))
        if changed:
            self._defs_changed(tenant)
        return declared

    async def _store(self, tenant: int, project_slug: str, found: _Found) -> tuple[Declared, bool]:
        async with self._database.transaction() as connection:
            project = await lock_project(connection, tenant, project_slug)
            changed = await replace_definitions(connection, project, found.checked.definitions, source=found.source)
            await set_synced(connection, tenant, project.id, found.status.to_json())
            return await read_declared(connection, tenant, project_slug), changed

    async def _store_failure(self, tenant: int, project_slug: str, message: str) -> Declared:
        status = SyncStatus("failed", message).to_json()
        async with self._database.transaction() as connection:
            project = await lock_project(connection, tenant, project_slug)
            await set_synced(connection, tenant, project.id, status)
            return await read_declared(connection, tenant, project_slug)


async def _find(project: ProjectRow, ask: Ask, most: int) -> _Found:
    """What to declare. Raises FunctionFault, InvalidInput."""
    try:
        answer = await ask()
    except FunctionFault as fault:
        if fault.name not in _NOT_REACHED or project.defs_file is None:
            raise
        checked = check_text(project.defs_file, strict_unknown=False, most=most)
        return _Found(checked, "file", SyncStatus("fallback", _text(str(fault)), _warnings(checked)))
    checked = check_list(answer.workflows, strict_unknown=False, most=most)
    sdk = {"name": answer.sdk.name, "language": answer.sdk.language, "version": answer.sdk.version}
    known = {name: value for name, value in sdk.items() if value}
    return _Found(checked, "sync", SyncStatus("synced", "", _warnings(checked), known or None))


def _warnings(checked: Checked) -> tuple[str, ...]:
    texts = [_text(f"{warning.path}: {warning.message}") for warning in checked.warnings]
    left_out = len(texts) - _MAX_WARNINGS
    return (*texts[:_MAX_WARNINGS], f"and {left_out} more") if left_out > 0 else tuple(texts)


def _text(text: str) -> str:
    return cut(storable(text), _MAX_TEXT_BYTES)
