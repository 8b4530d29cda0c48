"""One event that hits very many runs (rulings C24): what it found is stored with it, and carried out in small
transactions.

Locking a hundred thousand runs at once would stop everybody else. The candidates are written as marks in the
transaction that accepts the event, so it is still all or nothing; the answer's counts are of the plan. A wait that
another event took meanwhile is not resumed again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import asyncpg

from services.core.engine.accept_plan import EventPlan
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.hit_runs import Aftermath, cancel_runs, lock_runs, resume_waits
from services.core.engine.payload import event_payload
from services.core.engine.retrying import retrying
from services.core.engine.run_traces import RunTraces
from services.core.engine.sweeping import sweep_marks
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query

INLINE = 1_000
"""An event that hits more runs than this fans out."""

_PIECE = 500

Item = TypeVar("Item")


async def store_fan_out(connection: asyncpg.Connection, tenant: int, plan: EventPlan) -> None:
    """Write what the plan hits as marks, cancels first, and count it in the plan as done."""
    bodies = [
        json.dumps({"event": str(plan.id), "runs": [str(run) for run in piece]}) for piece in _pieces(plan.cancels)
    ]
    for waits in _pieces(plan.resumes):
        pairs = [[str(wait.id), str(wait.run)] for wait in waits]
        bodies.append(json.dumps({"event": str(plan.id), "waits": pairs}))
    await connection.execute(queries("engine")["store_fan_out"], tenant, bodies)
    plan.cancelled, plan.resumed = len(plan.cancels), len(plan.resumes)
    plan.cancelled_runs = plan.cancels[:INLINE]
    plan.resumed_runs = [wait.run for wait in plan.resumes[:INLINE]]


class FanOutMarks:
    """Carries out marks of kind fan_out."""

    def __init__(self, database: Database, hints: Hints, traces: RunTraces | None = None) -> None:
        self._database = database
        self._hints = hints
        self._gates = Gates(database, hints)
        self._traces = traces or RunTraces.off(database)

    async def sweep(self, min_age_ms: int, limit: int = 20) -> int:
        """Carry out marks older than `min_age_ms`, in order. Returns how many. Raises Unavailable."""
        return await sweep_marks(self._database, "fan_out_marks", self._retrying, min_age_ms=min_age_ms, limit=limit)

    async def _retrying(self, mark: asyncpg.Record) -> None:
        await retrying(partial(self._carry_out, mark))

    async def _carry_out(self, mark: asyncpg.Record, _attempt: int) -> None:
        tenant, body = mark["tenant"], json.loads(mark["body"])
        event = UUID(body["event"])
        aftermath = Aftermath()
        async with self._database.transaction() as connection:
            if not await connection.fetch(queries("engine")["take_mark"], mark["id"]):
                return  # another process carries it out, or has
            if "runs" in body:
                runs = [UUID(run) for run in body["runs"]]
                await lock_runs(connection, tenant, runs)
                await cancel_runs(connection, runs, aftermath)
            else:
                await lock_runs(connection, tenant, [UUID(run) for _, run in body["waits"]])
                stored = await connection.fetchrow(tenant_query("engine", "stored_event", tenant), event)
                await resume_waits(
                    connection,
                    [UUID(wait) for wait, _ in body["waits"]],
                    event=event,
                    payload=event_payload(event, stored["name"], stored["data"], stored["ts"]),
                    traced=self._traces.enabled,
                    aftermath=aftermath,
                )
        await aftermath.tell(tenant, self._hints, self._gates, self._traces, None)


def _pieces(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[start : start + _PIECE] for start in range(0, len(items), _PIECE)]
