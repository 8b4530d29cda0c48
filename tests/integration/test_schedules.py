"""Ticks of cron triggers: exactly once, never early, through the same door as every other start."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

import pytest

from services.core.engine.fire_due import BATCH, Fired
from services.core.runtime.ids import ulid_text
from services.core.store.database import connect
from services.core.store.schedules import FireRow, record_fires, take_due
from services.core.store.workflows import archive_all, bump_definitions
from tests.support.live_rows import LiveRows, Recorder
from tests.support.schedules import ScheduleStory, cron, scheduler, story, workflow
from tests.support.still_clock import StillClock, still_clock
from tests.support.waiting import until

__all__ = ["still_clock", "story"]

NINE = "0 9 * * *"
EVERY = "* * * * *"


async def test_case_09_cron_tick_drift(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:00Z")
    await story.declare(workflow("w", cron(NINE)))
    for look in ("2026-06-05T08:58:59.900Z", "2026-06-05T08:59:59.998Z"):
        assert await story.at(look) == Fired()
    assert await story.at("2026-06-05T09:01:00.050Z") == Fired(due=1, started=1)
    await story.clock.set("2026-06-05T09:02:00Z")
    others = [scheduler(story.rows.database, story.hints) for _ in range(2)]
    await asyncio.gather(*(other.fire() for other in others))
    assert await story.ticks() == ["2026-06-05T09:00:00Z"]
    created = await story.rows.value("select created_at from rt.runs")
    assert created == datetime.fromisoformat("2026-06-05T09:01:00.050Z")
    run = await story.rows.value("select id from rt.runs")
    async with story.rows.database.connection() as connection:
        (fire,) = await connection.fetch("select trigger, at from rt.cron_fire")
        assert await record_fires(connection, [FireRow(fire["trigger"], fire["at"], run)]) == set()


async def test_a_tick_starts_a_run_with_the_event_of_cron(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T05:30:00Z")
    await story.declare(workflow("w", {"event": "x"}, cron(NINE, timezone="Europe/Istanbul"), retries=2))
    await story.at("2026-06-05T06:00:00.004Z")
    row = await story.rows.row("select * from rt.runs")
    assert row is not None
    assert (row["source"], row["event_name"], row["test"]) == ("cron", "runr/cron", False)
    assert json.loads(row["event_data"]) == {
        "cron": NINE,
        "timezone": "Europe/Istanbul",
        "scheduled_at": "2026-06-05T06:00:00Z",
        "trigger": 1,
    }
    assert row["event_ts"] == datetime.fromisoformat("2026-06-05T06:00:00Z").timestamp() * 1_000
    live = await story.rows.live(row["id"])
    assert live is not None
    assert (live["st"], live["max_att"]) == ("q", 3)
    assert story.hints.ready == [row["id"]]
    (listed,) = await story.listed()
    assert listed.last_run == row["id"]
    assert listed.last_ms == row["event_ts"]


async def test_schedulers_at_once_fire_each_tick_once(story: ScheduleStory, rows: LiveRows) -> None:
    count = BATCH + 30
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(*(workflow(f"w{n}", cron(EVERY)) for n in range(count)))
    others = [scheduler(rows.database, story.hints) for _ in range(4)]
    for minute in (1, 2, 3):
        await story.clock.set(f"2026-06-05T08:0{minute}:00Z")
        fired = await asyncio.gather(*(other.fire() for other in others))
        assert sum(each.started for each in fired) == count
        assert sum(each.due for each in fired) == count
    per_tick = await rows.rows(
        "select r.wf, r.event_data, count(*) as n from rt.runs r group by r.wf, r.event_data having count(*) <> 1"
    )
    assert per_tick == []
    assert await rows.value("select count(*) from rt.runs") == 3 * count
    assert await rows.value("select count(*) from rt.cron_fire f join rt.runs r on r.id = f.run") == 3 * count
    assert len(story.hints.ready) == len(set(story.hints.ready)) == 3 * count


async def test_a_scheduler_that_dies_leaves_its_ticks_to_the_others(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:00Z")
    await story.declare(workflow("w", cron(NINE)))
    await story.clock.set("2026-06-05T09:00:00Z")
    dying = await connect(story.rows.database.dsn, "dying")
    transaction = dying.transaction()
    await transaction.start()
    (taken,) = await take_due(dying, 10)
    assert await story.due.fire() == Fired(), "another is at it"
    dying.terminate()

    async def fired() -> bool:
        return await story.due.fire() == Fired(due=1, started=1)

    await until(fired)
    assert taken.next_at == datetime.fromisoformat("2026-06-05T09:00:00Z")
    assert await story.due.fire() == Fired()
    assert await story.ticks() == ["2026-06-05T09:00:00Z"]


async def test_the_next_tick_fires_whatever_became_of_the_run(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:00Z")
    await story.declare(workflow("w", cron(NINE)))
    await story.at("2026-06-05T09:00:00Z")
    owner = await story.rows.owner()
    (run,) = story.hints.ready
    await story.rows.claim(owner, [run])
    await story.rows.end(owner, run, "failed", error='{"name":"E","message":"no"}')
    await story.at("2026-06-06T09:00:00Z")
    assert await story.ticks() == ["2026-06-05T09:00:00Z", "2026-06-06T09:00:00Z"]


@pytest.mark.parametrize(
    ("catch_up", "back_at", "expected"),
    [
        ("latest", "2026-06-05T12:30:00Z", ["2026-06-05T12:00:00Z"]),
        ("latest", "2026-06-05T12:00:00Z", ["2026-06-05T12:00:00Z"]),
        ("none", "2026-06-05T12:30:00Z", []),
        ("none", "2026-06-05T12:00:59.999Z", ["2026-06-05T12:00:00Z"]),
        ("all", "2026-06-05T12:30:00Z", [f"2026-06-05T{hour:02}:00:00Z" for hour in (9, 10, 11, 12)]),
    ],
)
async def test_after_downtime(story: ScheduleStory, catch_up: str, back_at: str, expected: list[str]) -> None:
    await story.clock.set("2026-06-05T08:00:00Z")
    await story.declare(workflow("w", cron("0 * * * *", catch_up=catch_up)))
    await story.at("2026-06-05T08:00:30Z")
    await story.at(back_at)
    assert await story.ticks() == expected
    assert await story.next_at("w") == "2026-06-05T13:00:00Z"


async def test_a_tick_missed_more_than_a_day_ago_is_not_caught_up(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-01T08:00:00Z")
    await story.declare(workflow("day", cron("0 9 2 * *")), workflow("older", cron("0 8 2 * *")))
    await story.at("2026-06-03T09:00:00Z")
    assert await story.ticks() == ["2026-06-02T09:00:00Z"]
    assert await story.next_at("older") == "2026-07-02T08:00:00Z"


async def test_all_catches_up_a_hundred_at_most(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-01T00:00:30Z")
    await story.declare(workflow("w", cron(EVERY, catch_up="all")))
    assert await story.at("2026-06-02T00:00:30Z") == Fired(due=1, started=100)
    ticks = await story.ticks()
    assert (ticks[0], ticks[-1]) == ("2026-06-01T22:21:00Z", "2026-06-02T00:00:00Z")


async def test_a_repeated_hour_fires_a_fixed_time_once(story: ScheduleStory) -> None:
    await story.clock.set("2026-10-24T12:00:00Z")
    await story.declare(workflow("w", cron("30 2 * * *", timezone="Europe/Berlin")))
    await story.at("2026-10-25T00:30:00Z")
    assert await story.at("2026-10-25T01:30:00Z") == Fired()
    assert await story.next_at("w") == "2026-10-26T01:30:00Z"


async def test_a_stored_instant_counts_whatever_the_zone_data_says(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:00Z")
    await story.declare(workflow("moved", cron(NINE)), workflow("gone", cron("0 10 * * *")))
    await story.rows.value("update rt.cron set next_at = '2026-06-05T09:17:00Z' where cron = $1", NINE)
    await story.rows.value("update rt.cron set timezone = 'Mars/Olympus' where cron <> $1", NINE)
    await story.at("2026-06-05T09:17:00Z")
    await story.at("2026-06-05T10:00:00Z")
    assert await story.ticks() == ["2026-06-05T09:17:00Z", "2026-06-05T10:00:00Z"]
    assert await story.next_at("gone") is None


async def test_a_limited_workflow_queues_its_ticks_at_the_gate(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(workflow("w", cron(EVERY), concurrency=1))
    await story.at("2026-06-05T08:01:00Z")
    await story.at("2026-06-05T08:02:00Z")
    states = await story.rows.rows("select st::text, slot from rt.live order by qk")
    assert [(row["st"], row["slot"]) for row in states] == [("q", True), ("b", False)]
    assert len(story.hints.ready) == 1


async def test_ticks_of_one_idempotency_key_have_one_run(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(workflow("w", cron(EVERY), idempotency="event.data.cron"))
    await story.at("2026-06-05T08:01:00Z")
    assert await story.at("2026-06-05T08:02:00Z") == Fired(due=1, started=0)
    (run,) = story.hints.ready
    fires = await story.rows.rows("select run from rt.cron_fire")
    assert [ulid_text(row["run"]) for row in fires] == [ulid_text(run)] * 2


async def test_a_workflow_is_cancelled_by_what_it_listens_to(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(workflow("w", cron(EVERY), cancel_on=[{"event": "stop"}]))
    await story.at("2026-06-05T08:01:00Z")
    assert await story.rows.value("select array_agg(event) from rt.wait where kind = 'x'") == ["stop"]


async def test_a_trigger_that_cannot_be_fired_stops_no_other(
    story: ScheduleStory, rows: LiveRows, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(workflow("bad", cron(EVERY)), *(workflow(f"w{n}", cron(EVERY)) for n in range(3)))
    bad = await rows.value("select id from rt.workflows where name = 'bad'")
    await rows.value(f"alter table rt.runs add constraint no_bad check (wf <> {bad})")
    assert await story.at("2026-06-05T08:01:00Z") == Fired(due=4, started=3, failed=1)
    assert "its tick is passed over" in caplog.text
    assert await story.next_at("bad") == "2026-06-05T08:02:00Z"
    assert len(recorder.ready) == 3


async def test_what_an_archived_or_deleted_workflow_left_behind_starts_nothing(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(workflow("w", cron(EVERY)))
    async with story.rows.database.transaction() as connection:
        project = await connection.fetchval("select id from rt.projects where slug = 'default'")
        await archive_all(connection, story.rows.tenant, project)
        await bump_definitions(connection, story.rows.tenant)
    assert await story.at("2026-06-05T08:01:00Z") == Fired(due=1, started=0)
    assert await story.at("2026-06-05T08:02:00Z") == Fired()
    await story.declare(workflow("w", cron(EVERY)))
    assert await story.next_at("w") == "2026-06-05T08:03:00Z"


async def test_looking_costs_the_same_with_a_hundred_thousand_sleeping_triggers(
    rows: LiveRows, still_clock: StillClock
) -> None:
    await still_clock.set("2026-06-05T08:00:00Z")

    async def pages() -> int:
        touched = 0
        for look in ("rt.cron_is_due_v1()", "rt.take_cron_v1(100)"):
            text = await rows.value(f"explain (analyze, buffers, format json) select * from {look}")
            plan = json.loads(text)[0]["Plan"]
            touched += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return touched

    few = max([await pages() for _ in range(3)][1:])
    await rows.value(
        "insert into rt.cron (tenant, wf, place, cron, timezone, catch_up, next_at) "
        "select n % 1000, n, 0, '* * * * *', 'UTC', 'latest', '2026-06-05T09:00:00Z' from generate_series(1, 100000) n"
    )
    await rows.value("vacuum analyze rt.cron")
    many = min([await pages() for _ in range(3)])
    assert many <= few + 8, "the depth of an index, not its size"
