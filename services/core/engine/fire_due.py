"""Fire the cron triggers that are due, of all tenants (engine section 9; rulings C14).

A batch is one transaction: it holds the triggers' rows, records their ticks (unique by trigger and instant), starts
the runs and moves each trigger on. So however many schedulers look at once, a tick has one run, and one that dies
leaves the tick to the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.core.domain.cron import CronError, parse_cron
from services.core.domain.errors import Unavailable
from services.core.domain.tick import next_tick, ticks_to_fire
from services.core.engine.definitions import DefinitionsCache, TenantDefinitions, WorkflowEntry
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.engine.ticks import Tick, TickStart, start_ticks, tell
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database
from services.core.store.schedules import (
    AdvanceRow,
    ScheduleRow,
    advance,
    database_now,
    due_ids,
    is_any_due,
    take_due,
)

log = logging.getLogger(__name__)

BATCH = 100


@dataclass(frozen=True, slots=True)
class Fired:
    """What came of a pass: triggers that were due, runs that were started, triggers that could not be fired."""

    due: int = 0
    started: int = 0
    failed: int = 0

    def __add__(self, other: Fired) -> Fired:
        return Fired(self.due + other.due, self.started + other.started, self.failed + other.failed)


class DueSchedules:
    """Fires what is due. Any number of processes may do it at once."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        hints: Hints,
        ids: UlidFactory,
        traces: RunTraces | None = None,
    ) -> None:
        self._database = database
        self._traces = traces or RunTraces.off(database)
        self._definitions = definitions
        self._hints = hints
        self._gates = Gates(database, hints)
        self._ids = ids

    async def fire(self) -> Fired:
        """Fire all that is due and that nobody else is firing. Raises Unavailable."""
        async with self._database.connection() as connection:
            if not await is_any_due(connection):
                return Fired()
        total = Fired()
        while True:
            try:
                batch = await self._fire()
            except Unavailable:
                raise
            except Exception:
                # One trigger must not stop those of everybody else.
                log.exception("a batch of cron triggers failed; they are fired one by one")
                batch = await self._one_by_one()
            total += batch
            if batch.due < BATCH:
                return total

    async def _one_by_one(self) -> Fired:
        async with self._database.connection() as connection:
            ids = await due_ids(connection, BATCH)
        total = Fired()
        for id in ids:
            try:
                total += await self._fire([id])
            except Unavailable:
                raise
            except Exception:
                log.exception("a cron trigger cannot be fired: its tick is passed over", extra={"schedule": id})
                total += await self._pass_over(id)
        return total

    async def _fire(self, ids: Sequence[int] | None = None) -> Fired:
        async with self._database.transaction() as connection:
            rows = await take_due(connection, BATCH, ids)
            if not rows:
                return Fired()
            now = await database_now(connection)
            definitions = await self._definitions.get_many(connection, sorted({row.tenant for row in rows}))
            entries = [_entry(row, definitions) for row in rows]
            ticks: list[Tick] = []
            for row, entry in zip(rows, entries, strict=True):
                ticks += self._ticks(row, entry, now)
            started = await start_ticks(connection, ticks, self._traces.spans)
            last = {each.tick.fire.trigger: each for each in started}
            await advance(
                connection,
                [_advanced(row, last, now, ends=entry is None) for row, entry in zip(rows, entries, strict=True)],
            )
        await tell(started, self._hints, self._gates, self._traces)
        return Fired(len(rows), sum(each.is_new for each in started))

    def _ticks(self, row: ScheduleRow, entry: WorkflowEntry | None, now: datetime) -> list[Tick]:
        if entry is None or row.next_at is None:
            return []
        try:
            instants = ticks_to_fire(parse_cron(row.cron, row.timezone), row.next_at, now, row.catch_up)
        except CronError:
            instants = [row.next_at]  # computed when the zone was still known
        return [Tick(schedule=row, entry=entry, at=at, run=self._ids.new(), event=self._ids.new()) for at in instants]

    async def _pass_over(self, id: int) -> Fired:
        async with self._database.transaction() as connection:
            rows = await take_due(connection, 1, [id])
            if rows:
                now = await database_now(connection)
                await advance(connection, [AdvanceRow(id, _next(row, now), None, None) for row in rows])
        return Fired(due=len(rows), failed=len(rows))


def _entry(row: ScheduleRow, definitions: Mapping[int, TenantDefinitions]) -> WorkflowEntry | None:
    """The workflow that a trigger starts; None where it may start none."""
    entry = definitions[row.tenant].workflows.get(row.wf)
    return entry if entry is not None and entry.is_active and not entry.archived else None


def _advanced(row: ScheduleRow, last: Mapping[int, TickStart], now: datetime, *, ends: bool) -> AdvanceRow:
    """Where a trigger stands now; `ends`: its workflow starts nothing."""
    assert row.id is not None, "it was read"
    next_at = None if ends else _next(row, now)
    start = last.get(row.id)
    if start is None:
        return AdvanceRow(row.id, next_at, None, None)
    return AdvanceRow(row.id, next_at, start.tick.at, start.run)


def _next(row: ScheduleRow, now: datetime) -> datetime | None:
    """The tick after this look; None, for good, for a zone that the time zone data does not have any more."""
    assert row.next_at is not None, "it was due"
    try:
        return next_tick(parse_cron(row.cron, row.timezone), max(now, row.next_at))
    except CronError as error:
        log.error("a cron trigger stops", extra={"schedule": row.id, "reason": error.message})
        return None
