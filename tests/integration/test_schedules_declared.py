"""Cron triggers and the definitions they come from: no tick lost or doubled by what is declared, paused, switched."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from services.core.domain.caller import Caller
from services.core.domain.errors import NotFound
from services.core.engine.fire_due import Fired
from services.core.engine.hints import Hints
from services.core.engine.schedules import ScheduleKey
from services.core.store.database import connect
from services.core.store.schedules import take_due
from services.scheduler.delete_project import ProjectDeleter
from tests.support.locks import held_up
from tests.support.schedules import ScheduleStory, cron, story, workflow
from tests.support.still_clock import still_clock

__all__ = ["still_clock", "story"]

NINE = "0 9 * * *"
HOURLY = "0 * * * *"
EVERY = "* * * * *"


@pytest.fixture(autouse=True)
async def at_eight(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:00Z")


async def test_triggers_are_listed_with_their_next_five_ticks(story: ScheduleStory) -> None:
    await story.declare(
        workflow("b", cron(NINE, timezone="Europe/Istanbul", catch_up="none")),
        workflow("a", {"event": "x"}, cron("*/30 * * * *"), cron("0 0 29 2 *")),
        workflow("c", {"event": "x"}),
    )
    listed = await story.listed()
    assert [(each.workflow, each.trigger) for each in listed] == [("a", 1), ("a", 2), ("b", 0)]
    b = listed[2]
    assert (b.project, b.cron, b.timezone, b.catch_up, b.is_active) == (
        "default",
        NINE,
        "Europe/Istanbul",
        "none",
        True,
    )
    assert (b.last_ms, b.last_run) == (None, None)
    day = 86_400_000
    assert b.next_ms == tuple(1_780_725_600_000 + day * n for n in range(5))
    assert [len(each.next_ms) for each in listed] == [5, 5, 5]
    page = await story.schedules.page(story.rows.tenant, "default", after=("a", 1), limit=1)
    assert [(each.workflow, each.trigger) for each in page] == [("a", 2)]


async def test_what_was_due_when_the_list_is_declared_again_is_neither_lost_nor_doubled(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(NINE)))
    await story.clock.set("2026-06-05T09:00:00.500Z")  # due, and nobody has looked yet
    await story.declare(workflow("w", cron(NINE), retries=1), workflow("other"))
    assert await story.due.fire() == Fired(due=1, started=1)
    await story.declare(workflow("w", cron(NINE), retries=2))
    await story.declare(workflow("w", cron(NINE, catch_up="none"), retries=2))
    assert await story.due.fire() == Fired()
    assert await story.ticks() == ["2026-06-05T09:00:00Z"]
    assert await story.next_at("w") == "2026-06-06T09:00:00Z"
    assert (await story.listed())[0].catch_up == "none"


async def test_a_trigger_is_the_same_wherever_it_stands_in_the_list(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(NINE), cron(HOURLY)))
    await story.switch("w", 1, is_active=False)
    await story.at("2026-06-05T09:00:00Z")
    before = {row["cron"]: row["id"] for row in await story.rows.rows("select id, cron from rt.cron")}
    await story.declare(workflow("w", {"event": "x"}, cron(HOURLY), cron(NINE), cron(EVERY)))
    after = {row["cron"]: row["id"] for row in await story.rows.rows("select id, cron from rt.cron")}
    assert {key: after[key] for key in before} == before
    assert [(each.trigger, each.cron, each.is_active) for each in await story.listed()] == [
        (1, HOURLY, False),
        (2, NINE, True),
        (3, EVERY, True),
    ]
    assert await story.next_at("w", 2) == "2026-06-06T09:00:00Z"
    await story.declare(workflow("w", cron(NINE)))
    assert [(each.trigger, each.cron) for each in await story.listed()] == [(0, NINE)]


async def test_an_edited_expression_counts_from_the_change(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(NINE), cron(NINE, timezone="Asia/Tokyo")))
    await story.switch("w", 1, is_active=False)
    await story.declare(workflow("w", cron("30 8 * * *"), cron("45 8 * * *")))
    assert await story.next_at("w") == "2026-06-05T08:30:00Z"
    assert await story.next_at("w", 1) is None, "what is switched off stays off, whatever its expression"
    await story.at("2026-06-05T09:00:00Z")
    assert await story.ticks() == ["2026-06-05T08:30:00Z"]


async def test_a_switched_off_trigger_survives_everything_but_being_switched_on(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(EVERY), cron(HOURLY)))
    record = await story.switch("w", 0, is_active=False)
    assert (record.is_active, record.next_ms) == (False, ())
    await story.declare(workflow("w", cron(EVERY), cron(HOURLY), retries=0))
    await story.pause("w")
    await story.pause("w", is_active=True)
    await story.declare()
    await story.declare(workflow("w", cron(EVERY), cron(HOURLY)))
    await story.at("2026-06-05T09:00:00Z")
    assert await story.ticks() == ["2026-06-05T09:00:00Z"]
    record = await story.switch("w", 0, is_active=True)
    assert record == await story.switch("w", 0, is_active=True)
    assert await story.next_at("w") == "2026-06-05T09:01:00Z"


async def test_ticks_of_a_pause_are_not_caught_up(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(HOURLY, catch_up="all")))
    await story.pause("w")
    assert await story.next_at("w") is None
    assert await story.at("2026-06-05T10:30:00Z") == Fired()
    await story.switch("w", 0, is_active=False)
    record = await story.switch("w", 0, is_active=True)
    assert (record.is_active, record.next_ms) == (True, ()), "the workflow is paused still"
    await story.pause("w", is_active=True)
    assert await story.at("2026-06-05T10:30:00Z") == Fired()
    await story.at("2026-06-05T11:00:00Z")
    assert await story.ticks() == ["2026-06-05T11:00:00Z"]


async def test_an_archived_workflow_has_no_ticks_until_it_is_declared_again(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(HOURLY)))
    await story.declare()
    assert await story.listed() == []
    assert await story.at("2026-06-05T09:30:00Z") == Fired()
    with pytest.raises(NotFound):
        await story.switch("w", 0, is_active=False)
    await story.declare(workflow("w", cron(HOURLY)))
    await story.at("2026-06-05T10:00:00Z")
    assert await story.ticks() == ["2026-06-05T10:00:00Z"]


async def test_a_pause_waits_for_the_tick_in_progress(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(EVERY)))
    await story.clock.set("2026-06-05T08:01:00Z")
    other = await connect(story.rows.database.dsn, "other")
    try:
        transaction = other.transaction()
        await transaction.start()
        assert await take_due(other, 10)
        pausing = asyncio.create_task(story.pause("w"))
        await held_up(other)
        assert not pausing.done()
        await other.execute("update rt.cron set next_at = '2026-06-05T08:02:00Z'")
        await transaction.commit()
        await pausing
    finally:
        await other.close()
    assert await story.next_at("w") is None


async def test_two_declarations_at_once_leave_one_trigger(story: ScheduleStory) -> None:
    await asyncio.gather(*(story.declare(workflow("w", cron(EVERY), retries=n)) for n in range(6)))
    assert await story.rows.value("select count(*) from rt.cron") == 1
    assert await story.at("2026-06-05T08:01:00Z") == Fired(due=1, started=1)


async def test_declarations_and_ticks_at_once_lose_and_double_nothing(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(EVERY)))
    for minute in range(1, 16):
        await story.clock.set(f"2026-06-05T08:{minute:02}:00Z")
        triggers = [cron(EVERY)] if minute % 2 else [{"event": "x"}, cron(EVERY)]
        await asyncio.gather(
            story.due.fire(), story.declare(workflow("w", *triggers, retries=minute)), story.due.fire()
        )
        await story.due.fire()
    assert await story.ticks() == [f"2026-06-05T08:{minute:02}:00Z" for minute in range(1, 16)]


async def test_what_is_not_there_is_not_found(story: ScheduleStory) -> None:
    await story.declare(workflow("w", {"event": "x"}, cron(EVERY)))
    for key in (
        ScheduleKey("default", "w", 0),
        ScheduleKey("default", "w", 2),
        ScheduleKey("default", "v", 1),
        ScheduleKey("nowhere", "w", 1),
    ):
        with pytest.raises(NotFound):
            await story.schedules.set_active(story.rows.tenant, key, False)
        with pytest.raises(NotFound):
            await story.by_hand.fire_now(story.rows.tenant, key)


async def test_a_deleted_project_leaves_no_trigger(story: ScheduleStory) -> None:
    await story.declare(workflow("w", cron(EVERY)))
    deleter = ProjectDeleter(story.rows.database, Hints(story.hints), lambda _: None)
    caller = Caller(tenant=story.rows.tenant, token_id=str(uuid.uuid4()), abilities=frozenset())
    await deleter.delete(caller, "default")
    assert await story.rows.value("select count(*) from rt.cron") == 0
