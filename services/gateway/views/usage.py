"""Usage in JSON."""

from __future__ import annotations

import msgspec
from runr.workflows.v1 import workflow_service_pb2


class CountView(msgspec.Struct, kw_only=True):
    """Runs started, and steps executed: every attempt of step.run, and each sleep, wait, invoke and send."""

    runs: int
    steps: int


class DayView(CountView, kw_only=True):
    """Usage of one day in UTC."""

    day: str


class WorkflowUsageView(CountView, kw_only=True):
    """Usage of one workflow; the names are null for all together that were deleted with their project."""

    workflow: str | None
    project: str | None


class UsageView(msgspec.Struct, kw_only=True):
    """Usage over a range: of every day in it, and of every workflow that has any."""

    total: CountView
    daily: list[DayView]
    workflows: list[WorkflowUsageView]


def usage_view(response: workflow_service_pb2.GetUsageResponse) -> UsageView:
    """Usage over a range of days."""
    return UsageView(
        total=CountView(runs=response.total.runs, steps=response.total.steps),
        daily=[DayView(day=each.day, runs=each.count.runs, steps=each.count.steps) for each in response.daily],
        workflows=[
            WorkflowUsageView(
                workflow=each.workflow or None,
                project=each.project or None,
                runs=each.count.runs,
                steps=each.count.steps,
            )
            for each in response.workflows
        ],
    )
