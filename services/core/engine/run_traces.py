"""Counts, and spans, for what happens to runs that nobody holds: waits that were resolved, ends, lost processes.

Whoever changed such a run knows its id and no more. Which trace it belongs to is looked up afterwards, for all runs of
a tenant at once and in the background: nothing waits for it, and what cannot be looked up has no span. While traces
are off nothing is looked up at all.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.engine.run_meter import RunMeter
from services.core.engine.run_spans import PastWait, RunSpans, TracedRun
from services.core.runtime.lifecycle import Component
from services.core.runtime.telemetry import Telemetry
from services.core.store.database import Database
from services.core.store.queries import tenant_query

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Batch:
    """What happened to runs of one tenant."""

    waits: list[tuple[UUID, PastWait]] = field(default_factory=list)
    ended: list[UUID] = field(default_factory=list)
    lost: list[tuple[UUID, int]] = field(default_factory=list)

    @property
    def runs(self) -> set[UUID]:
        return {*(run for run, _ in self.waits), *self.ended, *(run for run, _ in self.lost)}


class RunTraces(Component):
    """Takes notes from those who change runs, and turns them into spans of the sampled ones."""

    name = "run-traces"

    def __init__(
        self,
        database: Database,
        telemetry: Telemetry,
        meter: RunMeter | None = None,
        *,
        max_noted: int = 20_000,
    ) -> None:
        """`max_noted`: what may wait to be looked up; more than that has no span."""
        self._max_noted = max_noted
        self.meter = meter or RunMeter.off()
        self.spans = RunSpans(telemetry)
        self._database = database
        self._noted: dict[int, _Batch] = defaultdict(_Batch)
        self._count = 0
        self._wake = asyncio.Event()

    @classmethod
    def off(cls, database: Database) -> RunTraces:
        """Takes no notes."""
        return cls(database, Telemetry.off())

    @property
    def enabled(self) -> bool:
        """Whether traces are on; off, notes are only counted."""
        return self.spans.enabled

    def delivered(self, rows: Iterable[tuple[int, UUID, str | None]]) -> None:
        """Waits are resolved and committed: tenant, run, and `resolved` as `rt.deliver_v1` answers it."""
        if not self.enabled:
            return
        for tenant, run, resolved in rows:
            if resolved is not None and self._has_room():
                self._noted[tenant].waits += [(run, _past_wait(*wait)) for wait in json.loads(resolved)]

    def ended(self, status: str, rows: Collection[tuple[int, UUID]]) -> None:
        """Runs that nobody holds have ended so, and that is committed: tenant and run."""
        if rows:
            self.meter.ended(status, len(rows))
            self.held_ended(rows)

    def held_ended(self, rows: Iterable[tuple[int, UUID]]) -> None:
        """Their holder has ended runs, which the pipeline has counted: tenant and run."""
        if not self.enabled:
            return
        for tenant, run in rows:
            if self._has_room():
                self._noted[tenant].ended.append(run)

    def lost(self, rows: Iterable[tuple[int, UUID]]) -> None:
        """The process that held these runs is gone: tenant and run."""
        if not self.enabled:
            return
        now_ns = self.spans.now_ns()
        for tenant, run in rows:
            if self._has_room():
                self._noted[tenant].lost.append((run, now_ns))

    async def run(self) -> None:
        """Record what is noted, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._record()

    async def drain(self) -> None:
        """Record the rest."""
        await self._record()

    def _has_room(self) -> bool:
        """Whether one more may be noted: traces must not fill the memory of a process whose database is away."""
        if self._count >= self._max_noted:
            return False
        self._count += 1
        self._wake.set()
        return True

    async def _record(self) -> None:
        noted, self._noted = self._noted, defaultdict(_Batch)
        self._count = 0
        for tenant, batch in noted.items():
            try:
                await self._record_tenant(tenant, batch)
            except Unavailable:
                log.debug("spans are lost: the database is away", extra={"tenant": tenant})
            except Exception:
                # A fault here must cost spans and nothing else.
                log.exception("spans are lost", extra={"tenant": tenant})

    async def _record_tenant(self, tenant: int, batch: _Batch) -> None:
        async with self._database.connection() as connection:
            statement = tenant_query("traces", "traced_runs", tenant)
            found = {
                UUID(int=row["id"].int): row for row in await connection.fetch(statement, tenant, list(batch.runs))
            }
            waits = [(run, wait) for run, wait in batch.waits if run in found]
            senders = await _senders(connection, tenant, {wait.event for _, wait in waits if wait.event is not None})
            ended = [run for run in batch.ended if run in found]
            waits += await _cut_waits(connection, tenant, ended)
        traced = {run: TracedRun(run, row["workflow"], row["trace"]) for run, row in found.items()}
        for run, wait in waits:
            self.spans.waited(traced[run], wait, sender=None if wait.event is None else senders.get(wait.event))
        for run, at_ns in batch.lost:
            if run in traced:
                self.spans.lost(traced[run], at_ns)
        for run in ended:
            self._end(traced[run], found[run])

    def _end(self, run: TracedRun, row: asyncpg.Record) -> None:
        if row["status"] is not None:  # else it was retried meanwhile
            self.spans.ended(
                run,
                row["status"],
                created_ms=row["created_ms"],
                ended_ms=row["ended_ms"],
                steps=row["steps"],
                error=row["error"],
            )


async def _senders(connection: asyncpg.Connection, tenant: int, events: set[UUID]) -> Mapping[UUID, str]:
    if not events:
        return {}
    rows = await connection.fetch(tenant_query("traces", "traced_events", tenant), tenant, list(events))
    return {UUID(int=row["id"].int): row["trace"] for row in rows}


async def _cut_waits(connection: asyncpg.Connection, tenant: int, runs: list[UUID]) -> list[tuple[UUID, PastWait]]:
    if not runs:
        return []
    rows = await connection.fetch(tenant_query("traces", "cut_waits", tenant), tenant, runs)
    return [
        (
            UUID(int=row["run"].int),
            PastWait(row["kind"], row["sid"], row["opened_ms"], row["ended_ms"], cut=True),
        )
        for row in rows
    ]


def _past_wait(
    kind: str, step: str | None, opened_ms: int, ended_ms: int, error: str | None, event: str | None
) -> PastWait:
    return PastWait(kind, step, opened_ms, ended_ms, error, None if event is None else UUID(event))
