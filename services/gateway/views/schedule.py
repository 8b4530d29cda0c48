"""Cron triggers in JSON."""

from __future__ import annotations

import msgspec
from runr.workflows.v1 import schedule_service_pb2

from services.gateway.views.json_parts import instant_text, optional, time_text


class ScheduleView(msgspec.Struct, kw_only=True):
    """A cron trigger; `trigger` is its index in the definition, `next_at` are its next fire times."""

    project: str
    workflow: str
    trigger: int
    cron: str
    timezone: str
    catch_up: str
    is_active: bool
    next_at: list[str]
    last_at: str | None
    last_run_id: str | None


class BackfillView(msgspec.Struct, kw_only=True):
    """What a backfill did: ticks of the range, runs started, ticks passed over because they have a run."""

    total: int
    started: int
    skipped: int


def schedule_view(schedule: schedule_service_pb2.Schedule) -> ScheduleView:
    """A cron trigger."""
    return ScheduleView(
        project=schedule.key.project,
        workflow=schedule.key.workflow,
        trigger=schedule.key.trigger,
        cron=schedule.cron,
        timezone=schedule.timezone,
        catch_up=schedule.catch_up,
        is_active=schedule.is_active,
        next_at=[instant_text(each.seconds * 1_000 + each.nanos // 1_000_000) for each in schedule.next_at],
        last_at=time_text(schedule, "last_at"),
        last_run_id=optional(schedule, "last_run_id"),
    )


def backfill_view(job: schedule_service_pb2.BulkJob) -> BackfillView:
    """What a backfill did."""
    return BackfillView(total=job.total, started=job.succeeded, skipped=job.skipped)
