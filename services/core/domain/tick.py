"""Ticks of cron triggers: which of those that are due start a run, and what the run is told (engine section 9)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from services.core.domain.cron import Schedule, latest_fires, next_fires

CRON_EVENT = "runr/cron"

ON_TIME = timedelta(minutes=1)
"""A tick that is looked at this late has not been missed."""

LATEST_WITHIN = timedelta(hours=24)
MOST_AT_ONCE = 100


def ticks_to_fire(schedule: Schedule, due: datetime, now: datetime, catch_up: str) -> list[datetime]:
    """The ticks that start runs now, increasing; `due` is the first that is due and `now` is not before it.

    `latest`: the latest one, missed or not, unless it is more than a day old. `all`: all, the latest hundred of more.
    `none`: the latest one, unless it has been missed.
    """
    if catch_up == "all":
        return latest_fires(schedule, due, now, MOST_AT_ONCE)
    (tick,) = latest_fires(schedule, due, now, 1)
    if catch_up == "none":
        return [tick] if now - tick < ON_TIME else []
    return [tick] if now - tick <= LATEST_WITHIN else []


def next_tick(schedule: Schedule, after: datetime) -> datetime | None:
    """The first tick strictly after an instant; None where the calendar ends first."""
    return next(iter(next_fires(schedule, after, 1)), None)


def ticks_between(schedule: Schedule, since: datetime, until: datetime, most: int) -> list[datetime]:
    """The ticks from `since` on and before `until`; no more than `most + 1`, so that more than `most` can be told."""
    near = next_fires(schedule, since - timedelta(seconds=1), most + 2, until=until)
    return [tick for tick in near if since <= tick < until][: most + 1]


def tick_data(*, cron: str, timezone: str, scheduled_at: datetime, trigger: int) -> str:
    """The data of the event `runr/cron`, as JSON text. `trigger` is the trigger's index in the definition."""
    return json.dumps(
        {"cron": cron, "timezone": timezone, "scheduled_at": instant_text(scheduled_at), "trigger": trigger}
    )


def instant_text(instant: datetime) -> str:
    """ISO-8601 in UTC, `2026-10-25T01:00:00Z`; with milliseconds where it has some."""
    whole = instant.microsecond < 1_000
    return instant.astimezone(UTC).isoformat(timespec="seconds" if whole else "milliseconds").replace("+00:00", "Z")
