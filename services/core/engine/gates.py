"""Concurrency gates of runs (engine section 1, `concurrency`; rulings C16): which gates a run is in, and who comes
next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from services.core.domain.expression import evaluate, parse
from services.core.domain.json_value import hash_value, key_text
from services.core.engine.definitions import WorkflowEntry
from services.core.engine.hints import Hints
from services.core.store.database import Database
from services.core.store.queries import queries


def gates_of(entry: WorkflowEntry, trigger: dict[str, Any]) -> tuple[int, ...]:
    """The gates of a run of `entry` that the event `trigger` starts: none, one or two, in the order of the definition.

    A gate is a workflow's limit, or that limit for one value of its key. A null key is a value like any other.
    """
    gates = []
    for place, limit in enumerate(entry.definition.concurrency):
        key = "" if limit.key is None else key_text(evaluate(parse(limit.key), event=trigger)) or "null"
        gates.append(hash_value(f"{entry.id}/{place}/{key}"))
    return tuple(gates)


class Gates:
    """Lets blocked runs through gates where room was made."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def grant(self, gates: Iterable[int | None]) -> list[UUID]:
        """The runs let through. Call it after the commit that made room or added a run. Raises Unavailable.

        A call that never comes costs time, not work: the scheduler sweeps gates where runs wait.
        """
        wanted = sorted({gate for gate in gates if gate is not None})
        if not wanted:
            return []
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("engine")["grant"], wanted)
        granted = [UUID(int=row["run"].int) for row in rows]
        self._hints.ready(granted)
        return granted

    async def blocked(self, after: int, limit: int) -> list[int]:
        """Up to `limit` gates at which runs wait, in order, greater than `after`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("engine")["blocked_gates"], after, limit)
        return [row[0] for row in rows]
