"""Usage of a tenant or of one project (engine sections 3 and 11)."""

from __future__ import annotations

from datetime import date, timedelta

from services.core.domain.usage_record import Usage, UsageCount, WorkflowUsage, usage_range
from services.core.store.database import Database
from services.core.store.projects import get_project
from services.core.store.usage import today, usage_sums


async def read_usage(database: Database, tenant: int, *, project: str, first: str, last: str) -> Usage:
    """Usage from day `first` to day `last`, YYYY-MM-DD in UTC, both included; what was committed counts at once.

    `project` empty: of the whole tenant. Raises InvalidInput, NotFound, Unavailable.
    """
    async with database.connection() as connection:
        since, until = usage_range(first, last, await today(connection))
        id = (await get_project(connection, tenant, project)).id if project else None
        rows = await usage_sums(connection, tenant, id, since, until)
    by_day: dict[date, UsageCount] = {}
    workflows: list[WorkflowUsage] = []
    for row in rows:
        count = UsageCount(row["runs"], row["steps"])
        if row["is_day"]:
            by_day[row["day"]] = count
        else:
            workflows.append(WorkflowUsage(row["project"], row["workflow"], count))
    days = [since + timedelta(days=n) for n in range((until - since).days + 1)]
    return Usage(
        total=sum(by_day.values(), UsageCount()),
        daily=tuple((day, by_day.get(day, UsageCount())) for day in days),
        workflows=tuple(workflows),
    )
