"""Fire one cron trigger because somebody asks for it: now, or for the ticks of a past range (engine section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg

from services.core.domain.cron import parse_cron
from services.core.domain.errors import Conflict, InvalidInput
from services.core.domain.tick import instant_text, ticks_between
from services.core.engine.definitions import DefinitionsCache, WorkflowEntry
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.retrying import retrying
from services.core.engine.run_traces import RunTraces
from services.core.engine.schedules import ScheduleKey, unknown_schedule
from services.core.engine.start_request import Started
from services.core.engine.ticks import Tick, TickStart, start_ticks, tell
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database
from services.core.store.queries import tenant_query
from services.core.store.schedules import ScheduleRow, database_now, fired_runs, get_schedule, note_fired

MAX_BACKFILL = 1_000
_BATCH = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Backfilled:
    """How many ticks the range has, for how many a run was started, and how many were passed over.

    Passed over is a tick that has fired before, and one whose idempotency key has a run. A dry run starts none.
    """

    total: int
    started: int
    skipped: int


class ScheduleFirer:
    """Fires triggers by hand. A trigger that is switched off may be fired; one of a paused workflow may not."""

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

    async def fire_now(self, tenant: int, key: ScheduleKey, *, trace: str | None = None) -> Started:
        """Start a run as if the trigger had a tick now; its ticks stay as they are.

        Raises NotFound, Conflict (paused), Unavailable.
        """
        run, event = self._ids.new(), self._ids.new()

        async def once(attempt: int) -> tuple[Started, list[TickStart]]:
            async with self._database.transaction() as connection:
                stored = tenant_query("engine", "stored_runs", tenant)
                if attempt and await connection.fetchval(stored, [run]) is not None:
                    return Started(run, True), []  # the answer of the first attempt was lost after its commit
                schedule, entry = await self._find(connection, tenant, key)
                at = await database_now(connection)
                tick = Tick(schedule=schedule, entry=entry, at=at, run=run, event=event)
                # Before the start: who fires ticks takes the trigger's row before idempotency keys, too.
                await note_fired(connection, tick.fire)
                (start,) = await start_ticks(connection, [tick], self._traces.spans, record=False, trace=trace)
                if start.run != run:
                    await note_fired(connection, tick.fire._replace(run=start.run))
                return Started(start.run, start.is_new), [start]

        started, told = await retrying(once)
        await tell(told, self._hints, self._gates, self._traces, trace)
        return started

    async def backfill(
        self,
        tenant: int,
        key: ScheduleKey,
        *,
        since: datetime,
        until: datetime | None = None,
        dry_run: bool = False,
        trace: str | None = None,
    ) -> Backfilled:
        """Start a run for each tick from `since` on and before `until` (None: until now) that has not fired.

        What was done when it fails stays done; asking again goes on with the rest. Raises NotFound, Conflict (paused),
        InvalidInput (a range that is none, is not past, or has too many ticks), Unavailable.
        """
        async with self._database.connection() as connection:
            schedule, _ = await self._find(connection, tenant, key)
            now = await database_now(connection)
            ticks = _ticks_of(schedule, since, until, now)
            if dry_run:
                fired = await fired_runs(connection, _id(schedule), ticks)
                return Backfilled(len(ticks), 0, len(fired))
        started = 0
        for first in range(0, len(ticks), _BATCH):
            started += await self._some(tenant, key, _id(schedule), ticks[first : first + _BATCH], trace)
        return Backfilled(len(ticks), started, len(ticks) - started)

    async def _some(
        self, tenant: int, key: ScheduleKey, id: int, instants: Sequence[datetime], trace: str | None
    ) -> int:
        """How many runs were started."""
        made = {at: (self._ids.new(), self._ids.new()) for at in instants}

        async def once(attempt: int) -> tuple[int, list[TickStart]]:
            async with self._database.transaction() as connection:
                if attempt:
                    fired = await fired_runs(connection, id, instants)
                    mine = sum(made[at][0] == run for at, run in fired.items())
                    if mine:
                        return mine, []  # the answer of the first attempt was lost after its commit
                schedule, entry = await self._find(connection, tenant, key)
                if schedule.id != id:
                    raise Conflict("the trigger was declared anew meanwhile", reason="SCHEDULE_CHANGED")
                ticks = [
                    Tick(schedule=schedule, entry=entry, at=at, run=run, event=event)
                    for at, (run, event) in made.items()
                ]
                starts = await start_ticks(connection, ticks, self._traces.spans, trace=trace)
                return sum(start.is_new for start in starts), starts

        count, told = await retrying(once)
        await tell(told, self._hints, self._gates, self._traces, trace)
        return count

    async def _find(
        self, connection: asyncpg.Connection, tenant: int, key: ScheduleKey
    ) -> tuple[ScheduleRow, WorkflowEntry]:
        definitions = await self._definitions.get(connection, tenant)
        project = definitions.project_by_slug.get(key.project)
        entry = None if project is None else definitions.by_name.get((project.id, key.workflow))
        schedule = None if entry is None else await get_schedule(connection, tenant, entry.id, key.trigger)
        if entry is None or entry.archived or schedule is None:
            raise unknown_schedule(key)
        if not entry.is_active:
            raise Conflict(f"workflow {key.workflow} is paused: it starts no runs", reason="WORKFLOW_INACTIVE")
        return schedule, entry


def _ticks_of(schedule: ScheduleRow, since: datetime, until: datetime | None, now: datetime) -> list[datetime]:
    if until is not None and until > now:
        raise InvalidInput.of("until", f"must not be in the future: it is {instant_text(now)} now")
    end = now if until is None else until
    if since < _EPOCH:
        # Nothing had a tick then, and where the calendar begins no zone can be asked.
        raise InvalidInput.of("since", f"must not be before {instant_text(_EPOCH)}")
    if since >= end:
        raise InvalidInput.of("since", f"must be before the end of the range, {instant_text(end)}")
    ticks = ticks_between(parse_cron(schedule.cron, schedule.timezone), since.astimezone(UTC), end, MAX_BACKFILL)
    if len(ticks) > MAX_BACKFILL:
        raise InvalidInput.of(
            "until",
            f"the range has more than {MAX_BACKFILL} ticks: end it at or before {instant_text(ticks[MAX_BACKFILL])}",
        )
    return ticks


def _id(schedule: ScheduleRow) -> int:
    assert schedule.id is not None, "it was read"
    return schedule.id
