"""Bulk jobs in JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from runr.workflows.v1 import schedule_service_pb2 as pb

from services.core.rpc import convert
from services.gateway.views.json_parts import FailureView, failure, time_text


class BulkFaultView(msgspec.Struct, kw_only=True):
    """A run that a job could not do, and why."""

    run_id: str
    error: FailureView | None


class BulkJobView(msgspec.Struct, kw_only=True):
    """A job and its progress; `id` is null for a dry run. `total_is_partial`: there are at least `total` runs.

    `skipped` are runs whose state did not allow the action any more; `faults` are of the first few that `failed`.
    """

    id: str | None
    project: str
    action: str
    status: str
    total: int
    total_is_partial: bool
    succeeded: int
    skipped: int
    failed: int
    faults: list[BulkFaultView]
    error: FailureView | None
    created_at: str | None
    ended_at: str | None


class BulkStartView(BulkJobView, kw_only=True):
    """A job that was asked for, and some of the runs that it is about, the newest first."""

    sample: list[str]


def bulk_job_view(job: pb.BulkJob) -> BulkJobView:
    """A job."""
    return BulkJobView(**_fields(job))


def bulk_start_view(response: pb.StartBulkJobResponse) -> BulkStartView:
    """A job that was asked for."""
    return BulkStartView(**_fields(response.job), sample=list(response.sample_run_ids))


def _fields(job: pb.BulkJob) -> dict[str, Any]:
    return {
        "id": job.id or None,
        "project": job.project,
        "action": convert.word(pb.BulkAction, job.action),
        "status": convert.word(pb.BulkJobState, job.state),
        "total": job.total,
        "total_is_partial": job.total_is_partial,
        "succeeded": job.succeeded,
        "skipped": job.skipped,
        "failed": job.failed,
        "faults": [BulkFaultView(run_id=fault.run_id, error=failure(fault)) for fault in job.faults],
        "error": failure(job),
        "created_at": time_text(job, "created_at"),
        "ended_at": time_text(job, "ended_at"),
    }
