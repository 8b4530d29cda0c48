"""Usage, domain → proto."""

from __future__ import annotations

from runr.workflows.v1 import workflow_service_pb2 as pb

from services.core.domain.usage_record import Usage, UsageCount


def usage(record: Usage) -> pb.GetUsageResponse:
    """Usage over a range of days."""
    return pb.GetUsageResponse(
        total=_count(record.total),
        daily=[pb.DailyUsage(day=day.isoformat(), count=_count(count)) for day, count in record.daily],
        workflows=[
            pb.WorkflowUsage(workflow=each.workflow or "", project=each.project or "", count=_count(each.count))
            for each in record.workflows
        ],
    )


def _count(count: UsageCount) -> pb.UsageCount:
    return pb.UsageCount(runs=count.runs, steps=count.steps)
