"""Cron triggers fired because somebody asks: now, or for a past range."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

import pytest

from services.core.domain.errors import Conflict, InvalidInput
from services.core.engine.fire_due import Fired
from services.core.engine.fire_schedule import MAX_BACKFILL, Backfilled
from services.core.engine.schedules import ScheduleKey
from tests.support.schedules import ScheduleStory, cron, firer, story, workflow
from tests.support.still_clock import still_clock

__all__ = ["still_clock", "story"]

W = ScheduleKey("default", "w", 0)
NINE = "0 9 * * *"
EVERY = "* * * * *"


@pytest.fixture(autouse=True)
async def at_eight(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def backfill(story: ScheduleStory, since: str, until: str | None = None, *, dry_run: bool = False) -> Backfilled:
    end = None if until is None else at(until)
    return await story.by_hand.backfill(story.rows.tenant, W, since=at(since), until=end, dry_run=dry_run)


async def test_fired_now_it_runs_and_its_ticks_stay(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(NINE, timezone="Europe/Berlin")))
    await story.clock.set("2026-06-05T06:59:00.250Z")
    started = await story.by_hand.fire_now(story.rows.tenant, W, trace="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    assert started.is_new
    row = await story.rows.row("select * from rt.runs")
    assert row is not None
    assert (row["id"], row["source"], row["event_name"]) == (started.run, "cron", "runr/cron")
    assert row["trace"].startswith("00-aaaa")
    assert json.loads(row["event_data"])["scheduled_at"] == "2026-06-05T06:59:00.250Z"
    assert story.hints.ready == [started.run]
    (listed,) = await story.listed()
    assert listed.last_run == started.run
    assert await story.next_at("w") == "2026-06-06T07:00:00Z", "declared after today's"
    await story.at("2026-06-06T07:00:00Z")
    assert len(await story.ticks()) == 2


async def test_fired_at_the_instant_of_a_tick_it_suppresses_none(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(EVERY)))
    await story.clock.set("2026-06-05T08:01:00Z")
    await story.by_hand.fire_now(story.rows.tenant, W)
    assert await story.due.fire() == Fired(due=1, started=1)
    assert await story.ticks() == ["2026-06-05T08:01:00Z"] * 2


async def test_a_paused_workflow_is_not_fired_and_a_switched_off_trigger_is(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(NINE)))
    await story.switch("w", 0, is_active=False)
    assert (await story.by_hand.fire_now(story.rows.tenant, W)).is_new
    assert await backfill(story, "2026-06-04T00:00:00Z") == Backfilled(1, 1, 0)
    await story.pause("w")
    with pytest.raises(Conflict, match="paused"):
        await story.by_hand.fire_now(story.rows.tenant, W)
    with pytest.raises(Conflict, match="paused"):
        await backfill(story, "2026-06-04T00:00:00Z")


async def test_an_idempotency_key_leads_to_the_run_that_has_it(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(NINE), idempotency="event.data.cron"))
    first = await story.by_hand.fire_now(story.rows.tenant, W)
    again = await story.by_hand.fire_now(story.rows.tenant, W)
    assert (again.run, again.is_new) == (first.run, False)
    assert (await story.listed())[0].last_run == first.run
    assert await backfill(story, "2026-06-01T00:00:00Z") == Backfilled(4, 0, 4)
    assert story.hints.ready == [first.run]


async def test_a_range_is_backfilled_once(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(NINE)))
    await story.at("2026-06-05T09:00:00Z")
    assert await backfill(story, "2026-06-02T09:00:00Z", "2026-06-05T09:00:00Z", dry_run=True) == Backfilled(3, 0, 0)
    assert await backfill(story, "2026-06-02T09:00:00Z", "2026-06-05T09:00:00Z") == Backfilled(3, 3, 0)
    await story.clock.set("2026-06-05T09:00:01Z")
    assert await backfill(story, "2026-06-01T09:00:00Z", dry_run=True) == Backfilled(5, 0, 4)
    assert await backfill(story, "2026-06-01T09:00:00Z") == Backfilled(5, 1, 4)
    assert await backfill(story, "2026-06-01T09:00:00Z") == Backfilled(5, 0, 5)
    assert await story.ticks() == [f"2026-06-0{day}T09:00:00Z" for day in (1, 2, 3, 4, 5)]
    assert len(story.hints.ready) == 5
    assert (await story.listed())[0].last_ms == at("2026-06-05T09:00:00Z").timestamp() * 1_000


async def test_what_is_backfilled_while_it_is_due_has_one_run(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(EVERY, catch_up="all")))
    await story.clock.set("2026-06-05T08:31:30Z")
    others = [firer(story.rows.database, story.hints) for _ in range(3)]
    since = at("2026-06-05T08:01:00Z")
    done = await asyncio.gather(
        story.due.fire(), *(other.backfill(story.rows.tenant, W, since=since) for other in others)
    )
    fired, *filled = done
    assert isinstance(fired, Fired)
    assert fired.started + sum(each.started for each in filled if isinstance(each, Backfilled)) == 31
    assert await story.ticks() == [f"2026-06-05T08:{minute:02}:00Z" for minute in range(1, 32)]


async def test_a_range_has_at_most_a_thousand_ticks(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(EVERY)))
    since, until = "2026-06-04T08:00:00Z", at("2026-06-04T08:00:00Z") + timedelta(minutes=MAX_BACKFILL)
    over = (until + timedelta(minutes=1)).isoformat()
    with pytest.raises(InvalidInput, match="more than 1000 ticks: end it at or before 2026-06-05T00:40:00Z"):
        await backfill(story, since, over)
    assert await story.ticks() == []
    assert await backfill(story, since, until.isoformat()) == Backfilled(MAX_BACKFILL, MAX_BACKFILL, 0)
    assert await story.rows.value("select count(*) from rt.live where st = 'q'") == MAX_BACKFILL


@pytest.mark.parametrize(
    ("since", "until", "path"),
    [
        ("2026-06-01T00:00:00Z", "2026-06-05T08:00:30.001Z", "until"),
        ("2026-06-01T00:00:00Z", "2026-06-01T00:00:00Z", "since"),
        ("2026-06-06T00:00:00Z", None, "since"),
    ],
)
async def test_a_range_lies_in_the_past(story: ScheduleStory, since: str, until: str | None, path: str) -> None:
    await story.declare(workflow("w", cron(NINE)))
    with pytest.raises(InvalidInput) as refused:
        await backfill(story, since, until)
    assert [fault.path for fault in refused.value.errors] == [path]
