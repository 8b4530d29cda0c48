"""Usage: runs started and steps executed, counted per workflow and day (engine section 11)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from services.core.domain.errors import InvalidInput

MAX_DAYS = 1_000
"""Days that one answer may hold."""

_DEFAULT_BACK = 30
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class UsageCount:
    """`steps`: every attempt of step.run, and each sleep, wait, invoke and send."""

    runs: int = 0
    steps: int = 0

    def __add__(self, other: UsageCount) -> UsageCount:
        return UsageCount(self.runs + other.runs, self.steps + other.steps)


@dataclass(frozen=True, slots=True)
class WorkflowUsage:
    """Usage of one workflow. Both names are None for all those together that were deleted with their project."""

    project: str | None
    workflow: str | None
    count: UsageCount


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage over a range of days: in total, of every day in order (UTC), and of every workflow that has any."""

    total: UsageCount
    daily: tuple[tuple[date, UsageCount], ...]
    workflows: tuple[WorkflowUsage, ...]


def usage_range(first: str, last: str, today: date) -> tuple[date, date]:
    """First and last day of the range in a request; empty texts mean 30 days ago and today. Raises InvalidInput."""
    until = parse_day("to_day", last) if last else today
    since = parse_day("from_day", first) if first else _days_before(min(until, today), _DEFAULT_BACK)
    if since > until:
        raise InvalidInput.of("from_day", f"must not be after the last day, {until.isoformat()}")
    days = (until - since).days + 1
    if days > MAX_DAYS:
        raise InvalidInput.of("from_day", f"the range may have at most {MAX_DAYS} days, it has {days}")
    return since, until


def _days_before(day: date, days: int) -> date:
    """The first day that there is, at the earliest."""
    return date.fromordinal(max(1, day.toordinal() - days))


def parse_day(path: str, text: str) -> date:
    """A day like 2026-10-31. Raises InvalidInput."""
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass  # a month or day that there is not
    raise InvalidInput.of(path, "must be a day like 2026-10-31")
