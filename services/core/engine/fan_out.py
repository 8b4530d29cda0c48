"""One event that hits very many runs, or gives very many bytes to some (rulings C24): what it found is stored with it,
and carried out in small transactions.

Locking a hundred thousand runs at once would stop everybody else. The candidates are written as marks in the
transaction that accepts the event, so it is still all or nothing; the answer's counts are of the plan. A wait that
another event took meanwhile is not resumed again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.engine.accept_plan import EventPlan
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.hit_runs import Aftermath, cancel_runs, lock_runs, resume_waits
from services.core.engine.payload import event_payload
from services.core.engine.retrying import retrying
from services.core.engine.run_traces import RunTraces
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query

log = logging.getLogger(__name__)

INLINE = 1_000
"""An event that hits more runs than this fans out."""

INLINE_BYTES = 32 * 1024 * 1024
"""So does one by which the events of a request would give runs more than this in all."""

_PIECE = 500

Item = TypeVar("Item")


async def store_fan_out(connection: asyncpg.Connection, tenant: int, plan: EventPlan) -> list[int]:
    """Write what the plan hits as marks, cancels first, and count it in the plan as done. The marks, in order."""
    bodies = [
        json.dumps({"event": str(plan.id), "runs": [str(run) for run in piece]})
        for piece in _pieces(plan.cancels, _PIECE)
    ]
    most = max(1, min(_PIECE, INLINE_BYTES // max(1, len(plan.incoming.data))))
    for waits in _pieces(plan.resumes, most):
        pairs = [[str(wait.id), str(wait.run)] for wait in waits]
        bodies.append(json.dumps({"event": str(plan.id), "waits": pairs}))
    rows = await connection.fetch(queries("engine")["store_fan_out"], tenant, bodies)
    plan.cancelled, plan.resumed = len(plan.cancels), len(plan.resumes)
    plan.cancelled_runs = plan.cancels[:INLINE]
    plan.resumed_runs = [wait.run for wait in plan.resumes[:INLINE]]
    return [row["id"] for row in rows]


class FanOutMarks:
    """Carries out marks of kind fan_out."""

    def __init__(self, database: Database, hints: Hints, traces: RunTraces | None = None) -> None:
        self._database = database
        self._hints = hints
        self._gates = Gates(database, hints)
        self._traces = traces or RunTraces.off(database)

    async def sweep(self, min_age_ms: int, limit: int = 100) -> int:
        """Carry out up to `limit` marks older than `min_age_ms`: those of each tenant in order, the tenants in turn.
        Returns how many were carried out. Raises Unavailable.
        """
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("engine")["fan_out_marks"], min_age_ms, limit)
        return await self.carry_out([row["id"] for row in rows])

    async def carry_out(self, marks: Sequence[int]) -> int:
        """Carry out these marks, in order: one that fails is logged, stays, and holds up no other. Returns how many
        were carried out. Raises Unavailable.
        """
        done = 0
        for mark in marks:
            try:
                await retrying(partial(self._carry_out, mark))
            except Unavailable:
                raise
            except Exception:
                log.exception("a mark cannot be carried out", extra={"mark": mark})
            else:
                done += 1
        return done

    async def _carry_out(self, mark: int, _attempt: int) -> None:
        aftermath = Aftermath()
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(queries("engine")["take_fan_out"], mark)
            if row is None:
                return  # another process carries it out, or has
            tenant, body = row["tenant"], json.loads(row["body"])
            event = UUID(body["event"])
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
        self._hints.ready(aftermath.ready)
        await aftermath.tell(tenant, self._hints, self._gates, self._traces)


def _pieces(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    return [items[start : start + most] for start in range(0, len(items), most)]
