"""One look a second wakes the duties that have something to do, and only them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import get_args

from services.core.runtime.clock import SystemClock
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.scheduler.duties.glance import Glance, Sight
from services.scheduler.ticker import Duty, Ticker
from tests.support.live_rows import DAY_MS, LiveRows

SIGHTS: tuple[Sight, ...] = get_args(Sight)


class Counting:
    """A duty that counts how often it was run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = 0
        self.ran = asyncio.Event()

    async def run_once(self) -> Mapping[str, int]:
        self.runs += 1
        self.ran.set()
        return {}

    async def idle(self) -> None:
        raise AssertionError("it waits for the glance")


class Glancing:
    """A glance and a duty for each of its sights."""

    def __init__(self, database: Database) -> None:
        self.glance = Glance(database, DatabaseClock(SystemClock()))
        self.duties: dict[Sight, Counting] = {sight: Counting(sight) for sight in SIGHTS}

    @asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        woken: list[Duty] = [self.glance.wakes(sight, duty) for sight, duty in self.duties.items()]
        ticker = Ticker(woken)
        running = asyncio.create_task(ticker.run())
        try:
            for duty in self.duties.values():
                await asyncio.wait_for(duty.ran.wait(), 5)  # each runs once when it begins
                duty.ran.clear()
            yield
            await ticker.drain()
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def woken(self) -> set[Sight]:
        """Whom a look wakes."""
        before = {sight: duty.runs for sight, duty in self.duties.items()}
        count = (await self.glance.run_once())["woken"]
        async with asyncio.timeout(30):
            while True:
                run = {sight for sight, duty in self.duties.items() if duty.runs > before[sight]}
                if len(run) >= count:
                    return run
                await asyncio.sleep(0.005)


async def test_each_duty_is_woken_by_what_concerns_it(rows: LiveRows) -> None:
    glancing = Glancing(rows.database)
    async with glancing.ticking():
        assert await glancing.woken() == set()
        run = await rows.start_one()
        assert await glancing.woken() == {"queued"}
        await rows.rows("update rt.live set pooled = true where id = $1", run)
        assert await glancing.woken() == {"queued"}
        owner = await rows.owner()
        await rows.rows("update rt.live set pooled = false where id = $1", run)
        assert await rows.claim(owner, [run])
        assert await glancing.woken() == set()
        await rows.rows("insert into rt.mark (tenant, kind) values ($1, 'send_event')", rows.tenant)
        assert await glancing.woken() == {"marked"}
        await rows.rows("update rt.live set deadline = rt.now() where id = $1", run)
        assert await glancing.woken() == {"marked", "overdue"}
        await rows.rows("delete from rt.mark")
        await rows.rows("delete from rt.live")
        await rows.start_one(ga=7)
        assert await glancing.woken() == {"blocked"}


async def test_what_is_seen_while_a_duty_runs_wakes_it_again(rows: LiveRows) -> None:
    glancing = Glancing(rows.database)
    async with glancing.ticking():
        await rows.start_one()
        for _ in range(3):
            assert await glancing.woken() == {"queued"}
        assert glancing.duties["queued"].runs == 4
        assert glancing.duties["overdue"].runs == 1


async def test_time_and_other_duties_work_are_seen_too(rows: LiveRows) -> None:
    glancing = Glancing(rows.database)
    async with glancing.ticking():
        resting = await rows.asleep(DAY_MS)
        assert await glancing.woken() == set()
        await rows.rows("update rt.wait set due_at = rt.now() where run = $1 returning id", resting)
        assert await glancing.woken() == {"due"}
        await rows.rows("delete from rt.wait returning id")
        await rows.rest("w", [rows.wait("e", delay_ms=DAY_MS, event="paid", name_h=5, path_h=0, val_h=0, arming=True)])
        assert await glancing.woken() == {"arming"}
        await rows.rows("delete from rt.wait returning id")
        await rows.rows("delete from rt.live returning id")
        owner = await rows.owner()
        await rows.held(owner)
        assert await glancing.woken() == set()
        await rows.rows("update rt.owner set dead = true where id = $1 returning id", owner)
        assert await glancing.woken() == {"orphaned"}
        await rows.rows("delete from rt.owner where id = $1 returning id", owner)
        assert await glancing.woken() == {"orphaned"}
        await rows.rows("delete from rt.live returning id")
        job = (
            "insert into rt.bulk_job (id, tenant, project, action, filter, print, total, partial, turn_at)"
            " values (gen_random_uuid(), $1, 1, 'retry', '{}', 'x', 1, false, rt.now() + $2 * interval '1 hour')"
            " returning id"
        )
        await rows.rows(job, rows.tenant, 1)
        assert await glancing.woken() == set()
        await rows.rows("update rt.bulk_job set turn_at = rt.now() where tenant = $1 returning id", rows.tenant)
        assert await glancing.woken() == {"jobs"}


async def test_who_is_told_looks_at_once(rows: LiveRows) -> None:
    glance = Glance(rows.database, DatabaseClock(SystemClock()))
    marked, queued = asyncio.Event(), asyncio.Event()
    glance.tells("marked", marked.set)
    glance.tells("queued", queued.set)
    await rows.start_one()
    assert await glance.run_once() == {"woken": 1}
    assert (marked.is_set(), queued.is_set()) == (False, True)
