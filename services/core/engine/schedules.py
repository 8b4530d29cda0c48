"""Cron triggers of declared workflows: kept in step with the definitions, switched off and on, listed (engine section
9).

The next instant of a trigger is computed when the trigger comes to be, or may fire again, and is stored. A declaration
that leaves expression and zone as they are leaves the instant too, so no tick is lost or doubled by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import asyncpg

from services.core.domain.cron import CronError, next_fires, parse_cron
from services.core.domain.definition import CronTrigger, definition_from_json
from services.core.domain.errors import NotFound
from services.core.domain.schedule_record import ScheduleRecord
from services.core.domain.tick import next_tick
from services.core.engine.retrying import retrying
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project, lock_project
from services.core.store.schedules import (
    ScheduleRow,
    database_now,
    get_schedule,
    lock_schedules,
    page_of_schedules,
    replace_schedules,
    set_schedule_active,
)
from services.core.store.workflows import WorkflowRow, get_workflow

SHOWN_TICKS = 5

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """Names a cron trigger; `trigger` is its index in the definition."""

    project: str
    workflow: str
    trigger: int


class Schedules:
    """Lists cron triggers and switches them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, tenant: int, project_slug: str, *, after: tuple[str, int] | None, limit: int
    ) -> list[ScheduleRecord]:
        """Triggers of a project's declared workflows by workflow and index, behind `after`. Raises NotFound."""
        async with self._database.connection() as connection:
            project = await get_project(connection, tenant, project_slug)
            found = await page_of_schedules(connection, tenant, project.id, after=after, limit=limit)
        return [schedule_record(project, name, row) for name, row in found]

    async def set_active(self, tenant: int, key: ScheduleKey, is_active: bool | None) -> ScheduleRecord:
        """Switch a trigger off, or on; None, or what it is already, changes nothing. Raises NotFound, Unavailable."""
        return await retrying(lambda _: self._set_active(tenant, key, is_active))

    async def _set_active(self, tenant: int, key: ScheduleKey, is_active: bool | None) -> ScheduleRecord:
        async with self._database.transaction() as connection:
            # The project's row first, as every change of definitions takes it: the trigger cannot move meanwhile.
            project = await lock_project(connection, tenant, key.project)
            workflow = await get_workflow(connection, tenant, project.id, key.workflow)
            if workflow is None or workflow.archived_ms is not None:
                raise unknown_schedule(key)
            await lock_schedules(connection, [workflow.id])
            row = await get_schedule(connection, tenant, workflow.id, key.trigger)
            if row is None or row.id is None:
                raise unknown_schedule(key)
            if is_active is not None and is_active != row.is_active:
                fires = is_active and workflow.is_active
                next_at = _next_at(row, await database_now(connection)) if fires else None
                await set_schedule_active(connection, row.id, is_active, next_at)
                row = replace(row, is_active=is_active, next_at=next_at)
            return schedule_record(project, workflow.name, row)


async def keep_schedules(connection: asyncpg.Connection, tenant: int, workflows: Sequence[WorkflowRow]) -> None:
    """Bring the triggers of changed workflows in step with them, in the caller's transaction, which holds the project.

    Call it before the version of the definitions is moved: a tick in progress, for which this waits, may itself wait
    for one that reads the version.
    """
    wanted = {workflow.id: _cron_triggers(workflow) for workflow in workflows}
    held = await lock_schedules(connection, list(wanted))
    if not held and not any(wanted.values()):
        return
    now = await database_now(connection)
    before: dict[int, list[ScheduleRow]] = {id: [] for id in wanted}
    for row in held:
        before[row.wf].append(row)
    changed: list[int] = []
    rows: list[ScheduleRow] = []
    for workflow in workflows:
        fires = workflow.is_active and workflow.archived_ms is None
        kept = before[workflow.id]
        if workflow.archived_ms is not None:
            after = [replace(row, next_at=None) for row in kept]
        else:
            after = [_kept(row, fires, now) for row in _matched(tenant, workflow.id, kept, wanted[workflow.id])]
        if sorted(after, key=_place) != sorted(kept, key=_place):
            changed.append(workflow.id)
            rows += after
    if changed:
        await replace_schedules(connection, tenant, changed, rows)


def unknown_schedule(key: ScheduleKey) -> NotFound:
    """The error for a trigger that is not there."""
    return NotFound(f"workflow {key.workflow[:100]} of project {key.project[:100]} has no cron trigger {key.trigger}")


def schedule_record(project: ProjectRow, workflow: str, row: ScheduleRow) -> ScheduleRecord:
    """A trigger as callers see it."""
    return ScheduleRecord(
        project=project.slug,
        workflow=workflow,
        trigger=row.place,
        cron=row.cron,
        timezone=row.timezone,
        catch_up=row.catch_up,
        is_active=row.is_active,
        next_ms=tuple(map(unix_ms, _shown_ticks(row))),
        last_ms=None if row.last_at is None else unix_ms(row.last_at),
        last_run=row.last_run,
    )


def unix_ms(instant: datetime) -> int:
    """Milliseconds since 1970."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def _shown_ticks(row: ScheduleRow) -> list[datetime]:
    if row.next_at is None:
        return []
    try:
        schedule = parse_cron(row.cron, row.timezone)
    except CronError:  # a zone that this version's time zone data no longer has
        return [row.next_at]
    return [row.next_at, *next_fires(schedule, row.next_at, SHOWN_TICKS - 1)]


def _cron_triggers(workflow: WorkflowRow) -> dict[int, CronTrigger]:
    triggers = definition_from_json(workflow.definition).triggers
    return {place: trigger for place, trigger in enumerate(triggers) if isinstance(trigger, CronTrigger)}


def _matched(
    tenant: int, workflow: int, before: Iterable[ScheduleRow], wanted: dict[int, CronTrigger]
) -> list[ScheduleRow]:
    """A row for each trigger of the definition: the one it had, wherever in the list it was.

    The same expression and zone are the same trigger; of the rest, the same index is: its expression was edited, so its
    next instant is computed anew.
    """
    left = {row.place: row for row in sorted(before, key=_place)}
    rows: dict[int, ScheduleRow] = {}
    for place, trigger in wanted.items():
        same = [row for row in left.values() if (row.cron, row.timezone) == (trigger.cron, trigger.timezone)]
        if same:
            rows[place] = replace(left.pop(same[0].place), place=place, catch_up=trigger.catch_up)
    for place, trigger in wanted.items():
        if place not in rows:
            fresh = ScheduleRow(
                id=None,
                tenant=tenant,
                wf=workflow,
                place=place,
                cron=trigger.cron,
                timezone=trigger.timezone,
                catch_up=trigger.catch_up,
            )
            edited = left.pop(place, None)
            if edited is not None:
                fresh = replace(edited, cron=fresh.cron, timezone=fresh.timezone, catch_up=fresh.catch_up, next_at=None)
            rows[place] = fresh
    return list(rows.values())


def _kept(row: ScheduleRow, fires: bool, now: datetime) -> ScheduleRow:
    """The row with an instant if it fires, and without one if it does not; an instant that it has stays."""
    if not fires or not row.is_active:
        return replace(row, next_at=None)
    return row if row.next_at is not None else replace(row, next_at=_next_at(row, now))


def _next_at(row: ScheduleRow, now: datetime) -> datetime | None:
    return next_tick(parse_cron(row.cron, row.timezone), now)


def _place(row: ScheduleRow) -> int:
    return row.place
