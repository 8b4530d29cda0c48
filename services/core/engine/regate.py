"""Puts runs that wait before the gates of their workflow's limits as they are now (engine section 5; rulings C16).

The gates of a run are found when it is started. Where limits come, go or get another key, runs of before are not
claimed and not let through any more until they were put before the gates of now.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.domain.gate_rule import RunGates, gate_rule
from services.core.engine.definitions import DefinitionsCache, WorkflowEntry
from services.core.engine.gates import Gates, gates_of
from services.core.engine.hints import Hints
from services.core.engine.stored_run import stored_runs
from services.core.store.database import Database
from services.core.store.queries import queries

log = logging.getLogger(__name__)

_WORKFLOWS = 1_000
_EACH = 200
_MOST = 1_000
_BATCH = 50  # their events are read, which may have 256 KiB each
_BEFORE_ALL = (0, 0)


class Regater:
    """Finds the gates of runs anew. Any number of processes may do it at once."""

    def __init__(self, database: Database, definitions: DefinitionsCache, hints: Hints) -> None:
        self._database = database
        self._definitions = definitions
        self._hints = hints
        self._gates = Gates(database, hints)
        self._after = _BEFORE_ALL

    async def sweep(self) -> int:
        """Look at up to a thousand workflows with blocked runs, from where the last call ended, and move about so many
        runs; how many were moved.

        A run that cannot be moved is logged and stops no other. Raises Unavailable.
        """
        async with self._database.connection() as connection:
            found = await connection.fetch(queries("gates")["outdated"], *self._after, _WORKFLOWS, _EACH)
        moved = 0
        for row in found:
            if moved >= _MOST:
                return moved
            if row["runs"]:
                moved += await self._move_some(row["tenant"], row["wf"], row["runs"])
            self._after = (row["wf"], row["version"])
        if len(found) < _WORKFLOWS:
            self._after = _BEFORE_ALL
        return moved

    async def _move_some(self, tenant: int, workflow: int, runs: Sequence[UUID]) -> int:
        moved = 0
        for at in range(0, len(runs), _BATCH):
            some = runs[at : at + _BATCH]
            try:
                moved += await self.move(tenant, workflow, some)
            except Unavailable:
                raise
            except Exception:
                log.exception("runs of workflow %d cannot be put before its gates together", workflow)
                moved += await self._one_by_one(tenant, workflow, some)
        return moved

    async def _one_by_one(self, tenant: int, workflow: int, runs: Sequence[UUID]) -> int:
        moved = 0
        for run in runs:
            try:
                moved += await self.move(tenant, workflow, [run])
            except Unavailable:
                raise
            except Exception:
                log.exception("run %s cannot be put before its gates", run)
        return moved

    async def move(self, tenant: int, workflow: int, runs: Sequence[UUID]) -> int:
        """Put those of these runs of a workflow that nobody holds before their gates; how many were not there already.

        Raises Unavailable.
        """
        async with self._database.transaction() as connection:
            entry = (await self._definitions.get(connection, tenant)).workflows[workflow]
            gates = await self._gates_of(connection, entry, runs)
            rows = await connection.fetch(
                queries("gates")["regate"],
                list(gates),
                [each.version for each in gates.values()],
                [each.first for each in gates.values()],
                [each.second for each in gates.values()],
            )
        self._hints.ready([UUID(int=row["run"].int) for row in rows if row["ga"] is None])
        pairs = {(row["ga"], row["gb"]) for row in rows} | {(row["was_ga"], row["was_gb"]) for row in rows}
        await self._gates.grant(pairs)
        return len(rows)

    async def _gates_of(
        self, connection: asyncpg.Connection, entry: WorkflowEntry, runs: Sequence[UUID]
    ) -> dict[UUID, RunGates]:
        if not any(key for key, _ in gate_rule(entry.definition.concurrency).limits):
            return dict.fromkeys(runs, gates_of(entry, {}))
        found = await stored_runs(connection, self._definitions, entry.tenant, runs)
        return {run: gates_of(entry, stored.trigger()) for run, stored in found.items() if stored is not None}
