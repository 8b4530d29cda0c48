"""The gRPC face of bulk jobs: translates, and calls what does the work. A part of `schedule_service.py`."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import schedule_service_pb2 as pb

from services.core.engine.bulk_job import BulkJobs, BulkRequest
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.convert_bulk import bulk_action, bulk_job, bulk_run_filter
from services.core.rpc.convert_run import id_of
from services.core.rpc.id_paging import page_of
from services.core.runtime.ids import ulid_text


class BulkMethods:
    """The methods of `ScheduleService` that are about bulk jobs."""

    def __init__(self, jobs: BulkJobs) -> None:
        self._jobs = jobs

    async def StartBulkJob(self, request: pb.StartBulkJobRequest, context: Any) -> pb.StartBulkJobResponse:
        """Counts what the filter finds and, unless it is a dry run, begins the job."""
        job, sample = await self._jobs.start(
            BulkRequest(
                caller=caller(),
                project=request.project,
                action=bulk_action(request),
                wanted=bulk_run_filter(request.filter),
                dry_run=request.dry_run,
                trace=current_call().traceparent or None,
            )
        )
        return pb.StartBulkJobResponse(job=bulk_job(job), sample_run_ids=map(ulid_text, sample))

    async def GetBulkJob(self, request: pb.GetBulkJobRequest, context: Any) -> pb.GetBulkJobResponse:
        """One job with its progress."""
        job = await self._jobs.get(caller().tenant, id_of(request.job_id, "job"))
        return pb.GetBulkJobResponse(job=bulk_job(job))

    async def ListBulkJobs(self, request: pb.ListBulkJobsRequest, context: Any) -> pb.ListBulkJobsResponse:
        """A page of jobs, newest first."""
        page, token = await page_of(
            request,
            lambda after, limit: self._jobs.page(caller().tenant, request.project, after=after, limit=limit),
        )
        return pb.ListBulkJobsResponse(jobs=map(bulk_job, page), next_page_token=token)

    async def StopBulkJob(self, request: pb.StopBulkJobRequest, context: Any) -> pb.StopBulkJobResponse:
        """Stops a job."""
        job = await self._jobs.stop(caller(), id_of(request.job_id, "job"))
        return pb.StopBulkJobResponse(job=bulk_job(job))
