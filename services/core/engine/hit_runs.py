"""What an event does to runs that are there: cancel some, resume others. Their rows are locked in the order of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import asyncpg

from services.core.engine.gates import Gates, Pair
from services.core.engine.hints import Hints
from services.core.engine.retrying import after_commit
from services.core.engine.run_traces import RunTraces
from services.core.store.queries import queries


class Delivery(NamedTuple):
    """What a wait gets: the event, as the step that waits sees it."""

    wait: UUID
    event: UUID
    payload: str


@dataclass(slots=True)
class Aftermath:
    """What others must hear of after the commit."""

    ready: list[UUID] = field(default_factory=list)
    gates: set[Pair] = field(default_factory=set)
    cancelled: dict[int, list[UUID]] = field(default_factory=dict)
    ended: list[UUID] = field(default_factory=list)
    delivered: list[asyncpg.Record] = field(default_factory=list)
    fan_outs: list[int] = field(default_factory=list)

    def note_delivered(self, rows: Sequence[asyncpg.Record]) -> None:
        """Runs got something, as `rt.deliver_v1` answers it."""
        self.delivered += rows
        free = [row for row in rows if row["owner"] is None]
        self.ready += [row["run"] for row in free if row["ga"] is None]
        self.gates.update((row["ga"], row["gb"]) for row in free)

    async def tell(self, tenant: int, hints: Hints, gates: Gates, traces: RunTraces) -> None:
        """All but that runs are ready: give freed slots away, note what traces show."""
        await after_commit(gates.grant(self.gates))
        for owner, runs in self.cancelled.items():
            hints.cancelled(owner, runs)
        hints.delivered((row["run"], row["owner"]) for row in self.delivered)
        traces.delivered((tenant, row["run"], row["resolved"]) for row in self.delivered)
        traces.ended("cancelled", [(tenant, run) for run in self.ended])


def is_gated(row: asyncpg.Record) -> bool:
    """Whether a run that was resumed, and that nobody holds, needs a slot first."""
    return row["owner"] is None and row["ga"] is not None


async def lock_runs(connection: asyncpg.Connection, tenant: int, runs: Sequence[UUID]) -> None:
    """Lock the live rows of runs, waiting for them in the one order (rulings C11)."""
    await connection.fetch(queries("engine")["lock_runs"], tenant, runs)


async def cancel_runs(connection: asyncpg.Connection, runs: Sequence[UUID], aftermath: Aftermath) -> list[UUID]:
    """Cancel those of these locked runs that are still active; which they were."""
    count = len(runs)
    rows = await connection.fetch(
        queries("engine")["finish"], runs, ["cancelled"] * count, [None] * count, [None] * count
    )
    ended = [row["run"] for row in rows]
    aftermath.ended += ended
    aftermath.gates.update((row["ga"], row["gb"]) for row in rows)
    for row in rows:
        if row["owner"] is not None:
            aftermath.cancelled.setdefault(row["owner"], []).append(row["run"])
    return ended


async def resume_waits(
    connection: asyncpg.Connection,
    waits: Sequence[UUID],
    *,
    event: UUID,
    payload: str,
    traced: bool,
    aftermath: Aftermath,
) -> list[asyncpg.Record]:
    """Resume those of these waits that are still open, their runs being locked. One row for each run that got
    something.
    """
    rows = await connection.fetch(queries("engine")["deliver_event"], waits, event, payload, traced)
    aftermath.note_delivered(rows)
    return list(rows)


async def lock_and_resume(
    connection: asyncpg.Connection,
    tenant: int,
    runs: Sequence[UUID],
    deliveries: Sequence[Delivery],
    *,
    traced: bool,
    aftermath: Aftermath,
) -> list[asyncpg.Record]:
    """Lock the rows of runs, as `lock_runs` does, then `resume_waits` for waits of theirs, each with its own event."""
    count = len(deliveries)
    rows = await connection.fetch(
        queries("engine")["lock_and_deliver"],
        tenant,
        runs,
        [delivery.wait for delivery in deliveries],
        ["c"] * count,
        [delivery.payload for delivery in deliveries],
        [None] * count,
        [delivery.event for delivery in deliveries],
        traced,
    )
    aftermath.note_delivered(rows)
    return list(rows)
