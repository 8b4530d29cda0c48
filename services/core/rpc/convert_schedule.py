"""Cron triggers, domain → proto."""

from __future__ import annotations

from runr.workflows.v1 import schedule_service_pb2 as pb

from services.core.domain.schedule_record import ScheduleRecord
from services.core.rpc.convert import timestamp
from services.core.rpc.convert_run import id_text


def schedule(record: ScheduleRecord) -> pb.Schedule:
    """A cron trigger."""
    return pb.Schedule(
        key=pb.ScheduleKey(project=record.project, workflow=record.workflow, trigger=record.trigger),
        cron=record.cron,
        timezone=record.timezone,
        catch_up=record.catch_up,
        is_active=record.is_active,
        next_at=[moment for unix_ms in record.next_ms if (moment := timestamp(unix_ms)) is not None],
        last_at=timestamp(record.last_ms),
        last_run_id=id_text(record.last_run),
    )


def backfilled(*, project: str, total: int, started: int, skipped: int) -> pb.BulkJob:
    """What a backfill did, as the job that it is to callers."""
    return pb.BulkJob(
        project=project,
        action=pb.BULK_ACTION_BACKFILL,
        state=pb.BULK_JOB_STATE_COMPLETED,
        total=total,
        succeeded=started,
        skipped=skipped,
    )
