"""A cron trigger as callers see it (engine section 3, schedules)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """A cron trigger; `trigger` is its index in the definition. Times are unix milliseconds.

    `next_ms` are the next fire times, none while the trigger or its workflow is paused. `last_ms` and `last_run` are of
    the last tick that started a run, or of a start by hand after it.
    """

    project: str
    workflow: str
    trigger: int
    cron: str
    timezone: str
    catch_up: str
    is_active: bool
    next_ms: tuple[int, ...]
    last_ms: int | None
    last_run: UUID | None
