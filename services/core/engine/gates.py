"""Concurrency gates of runs (engine section 5, `concurrency`; rulings C16): which gates a run is in, and who comes
next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from services.core.domain.expression import evaluate, parse
from services.core.domain.gate_rule import NO_GATES, RunGates, gate_rule
from services.core.domain.json_value import hash_value, key_text
from services.core.engine.definitions import WorkflowEntry
from services.core.engine.hints import Hints
from services.core.store.database import Database
from services.core.store.queries import queries

Pair = tuple[int | None, int | None]
"""The gates of a run: both, the only one and None, or none at all."""

NO_PAIR: Pair = (None, None)

_BATCH = 64


def gates_of(entry: WorkflowEntry, trigger: dict[str, Any]) -> RunGates:
    """The gates of a run of `entry` that the event `trigger` starts.

    A gate is a workflow's limit, or that limit for one value of its key. A null key is a value like any other. Where
    the limit stands in the definition, and what its number is, makes no other gate of it.
    """
    if not entry.definition.concurrency:
        return NO_GATES
    gates = []
    for key, _ in gate_rule(entry.definition.concurrency).limits:
        value = (key_text(evaluate(parse(key), event=trigger)) or "null") if key else ""
        gates.append(hash_value([entry.id, key, value]))
    return RunGates(entry.gate_version, gates[0], gates[1] if len(gates) > 1 else None)


class Gates:
    """Lets blocked runs through gates where room was made."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def grant(self, pairs: Iterable[Pair]) -> list[UUID]:
        """The runs let through. Call it after the commit that made room or added a run, with the gates of each such
        run. Raises Unavailable.

        A call that never comes costs time, not work: the scheduler sweeps gates where runs wait.
        """
        wanted = sorted({(first, second or 0) for first, second in pairs if first is not None})
        granted: list[UUID] = []
        for start in range(0, len(wanted), _BATCH):
            some = wanted[start : start + _BATCH]
            while await self._grant([first for first, _ in some], [second or None for _, second in some], granted):
                pass
        return granted

    async def _grant(self, first: list[int], second: list[int | None], granted: list[UUID]) -> bool:
        """Whether there is more to do. One transaction, which holds the gates for no longer than a batch takes."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("gates")["grant"], first, second)
        some = [UUID(int=row["run"].int) for row in rows if row["run"] is not None]
        self._hints.ready(some)
        granted += some
        return len(some) < len(rows)

    async def blocked(self, after: Pair, limit: int) -> list[Pair]:
        """Up to `limit` pairs of gates at which runs wait, in order, behind `after`."""
        first, second = after
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("gates")["blocked"], first, second or 0, limit)
        return [(row["ga"], row["gb"]) for row in rows]
