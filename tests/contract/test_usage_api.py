"""Usage over REST and over gRPC."""

from __future__ import annotations

from typing import Any

import pytest
from runr.workflows.v1 import workflow_service_pb2 as pb

from services.core.domain.errors import InvalidInput
from tests.contract.test_control_api import Api, api
from tests.support.hand import Hand
from tests.support.http_gateway import gateway

__all__ = ["api"]


async def test_the_servicer_answers_what_was_counted(api: Api, hand: Hand) -> None:
    await hand.start("work")
    for project in ("", "default"):
        answer = await api(pb.GetUsageRequest(project=project))
        assert answer.total == pb.UsageCount(runs=1)
        assert len(answer.daily) == 31
        assert list(answer.workflows) == [
            pb.WorkflowUsage(workflow="work", project="default", count=pb.UsageCount(runs=1))
        ]
    with pytest.raises(InvalidInput):
        await api(pb.GetUsageRequest(from_day="2026-02-01", to_day="2026-01-01"))


async def test_both_routes_ask_for_days_and_show_the_sums() -> None:
    asked: list[Any] = []

    async def get_usage(request: Any, context: Any) -> Any:
        asked.append(request)
        answer = pb.GetUsageResponse(total=pb.UsageCount(runs=1, steps=2))
        answer.daily.add(day="2026-01-31", count=pb.UsageCount(runs=1, steps=2))
        answer.workflows.add(workflow="work", project="shop", count=pb.UsageCount(steps=2))
        answer.workflows.add(count=pb.UsageCount(runs=1))
        return answer

    async with gateway({"workflow.GetUsage": get_usage}) as client:
        reply = await client.call("GET", "/api/projects/shop/workflow-usage?from=2026-01-31&to=2026-02-01")
        whole = await client.call("GET", "/api/workflow-usage")
        refused = await client.call("GET", "/api/workflow-usage?from=31.1.2026")
    assert asked == [
        pb.GetUsageRequest(project="shop", from_day="2026-01-31", to_day="2026-02-01"),
        pb.GetUsageRequest(),
    ]
    assert (reply.status, reply.json) == (
        200,
        {
            "total": {"runs": 1, "steps": 2},
            "daily": [{"runs": 1, "steps": 2, "day": "2026-01-31"}],
            "workflows": [
                {"runs": 0, "steps": 2, "workflow": "work", "project": "shop"},
                {"runs": 1, "steps": 0, "workflow": None, "project": None},
            ],
        },
    )
    assert whole.json == reply.json
    assert "2026-10-31" in refused.faults()["from"]
