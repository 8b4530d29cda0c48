"""The duty that fires cron triggers, by a clock that runs: on time, once, over every absence of the database."""

from __future__ import annotations

from datetime import timedelta

from services.core.runtime.clock import SystemClock
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.scheduler.duties.cron import Cron, ForgetFires
from services.scheduler.duties.glance import Glance
from services.scheduler.ticker import Ticker
from tests.support.live_rows import Recorder
from tests.support.schedules import ScheduleStory, cron, scheduler, story, workflow
from tests.support.still_clock import still_clock
from tests.support.ticking import ticking
from tests.support.waiting import until

__all__ = ["still_clock", "story"]


def new_ticker(database: Database, hints: Recorder) -> Ticker:
    glance = Glance(database, DatabaseClock(SystemClock()))
    return Ticker([glance, glance.wakes("cron", Cron(scheduler(database, hints)))])


async def test_schedulers_fire_a_tick_at_its_instant(story: ScheduleStory, recorder: Recorder) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    count = 20
    await story.declare(*(workflow(f"w{number}", cron("* * * * *")) for number in range(count)))
    await story.clock.run_from("2026-06-05T08:00:58.300Z")
    async with ticking(*(new_ticker(story.rows.database, recorder) for _ in range(2))):
        await until(lambda: _count(recorder, count))
    late = await story.rows.rows(
        "select r.created_at - f.at as late from rt.cron_fire f join rt.runs r on r.id = f.run"
    )
    assert len(late) == len(recorder.ready) == count
    assert min(row["late"] for row in late) >= timedelta(0)


async def test_a_tick_that_was_declared_just_before_is_on_time(story: ScheduleStory, recorder: Recorder) -> None:
    await story.clock.run_from("2026-06-05T08:00:58Z")
    async with ticking(new_ticker(story.rows.database, recorder)):
        await until(lambda: story.rows.value("select extract(second from rt.now()) >= 59"))
        await story.declare(workflow("w", cron("* * * * *")))
        await until(lambda: _count(recorder, 1))
    late = await story.rows.value("select r.created_at - f.at from rt.cron_fire f join rt.runs r on r.id = f.run")
    assert late >= timedelta(0)


async def test_it_looks_again_when_the_database_was_away(
    story: ScheduleStory, recorder: Recorder, postgres_url: str
) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(workflow("w", cron("* * * * *")))
    theirs = Database(postgres_url, name="scheduler", size=2)
    await theirs.open()
    try:
        async with ticking(new_ticker(theirs, recorder)):
            cut = await story.rows.value(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity "
                "where datname = current_database() and application_name = 'scheduler'"
            )
            await story.clock.set("2026-06-05T08:01:00Z")
            await until(lambda: _count(recorder, 1))
    finally:
        await theirs.close()
    assert cut
    assert await story.ticks() == ["2026-06-05T08:01:00Z"]


async def test_ticks_are_forgotten_with_runs_of_their_age(story: ScheduleStory) -> None:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(workflow("w", cron("0 9 * * *")))
    await story.at("2026-06-05T09:00:00Z")
    await story.at("2026-06-06T09:00:00Z")
    duty = ForgetFires(story.rows.database, run_days=3)
    await story.clock.set("2026-06-08T09:00:00Z")
    assert await duty.run_once() == {"forgotten": 0}
    await story.clock.set("2026-06-08T09:00:01Z")
    assert await duty.run_once() == {"forgotten": 1}
    assert await story.rows.value("select count(*) from rt.cron_fire") == 1


async def _count(recorder: Recorder, count: int) -> bool:
    return len(recorder.ready) >= count
