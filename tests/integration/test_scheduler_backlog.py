"""What waits in the engine is measured by one scheduler, and told as it is."""

from __future__ import annotations

import asyncio

from services.core.runtime.clock import SystemClock
from services.core.runtime.metrics import Metrics
from services.core.store.database import Database
from services.scheduler.duties.backlog import KEPT_S, Backlog
from services.scheduler.partitions import Partitions
from tests.integration.test_scheduler_partitions import new_partitions
from tests.support.live_rows import DAY_MS, LiveRows
from tests.support.turned_clock import TurnedClock

HOUR_S = 3_600


def told(metrics: Metrics) -> dict[str, float]:
    """What is measured: by its name, with the value of its label."""
    return {
        " ".join((family.metric.name.removeprefix("runr_"), *labels)): value
        for family in metrics.families()
        for labels, value in family.numbers.items()
    }


async def measured(database: Database, partitions: Partitions) -> dict[str, float]:
    metrics = Metrics("scheduler")
    Backlog(database, partitions, metrics, SystemClock())
    await metrics.measure()
    return told(metrics)


async def waited(rows: LiveRows, seconds: int, *runs: object) -> None:
    await rows.rows(
        "update rt.live set qk = rt.now() - prio * interval '1 second' - $1 * interval '1 second'"
        " where id = any ($2) returning id",
        seconds,
        list(runs),
    )


async def test_nothing_waits(rows: LiveRows) -> None:
    partitions = new_partitions(rows.database)
    await partitions.beat()
    await rows.asleep(DAY_MS)
    assert await measured(rows.database, partitions) == {
        "queue_oldest_age_seconds any": 0,
        "queue_oldest_age_seconds workers": 0,
        "queue_length any": 0,
        "queue_length workers": 0,
        "timers_overdue_seconds": 0,
        "marks_oldest_age_seconds": 0,
    }
    await partitions.stop()


async def test_the_oldest_of_everything_that_waits(rows: LiveRows) -> None:
    partitions = new_partitions(rows.database)
    await partitions.beat()
    old, young = await rows.start(2)
    (preferred,) = await rows.start(1, prio=600)
    (pooled,) = await rows.start(1, wf=2)
    await rows.rows("update rt.live set pooled = true where id = $1 returning id", pooled)
    await waited(rows, HOUR_S, old)
    await waited(rows, 60, young, preferred)
    await waited(rows, 2 * HOUR_S, pooled)
    await rows.asleep(-3 * HOUR_S * 1_000)
    await rows.rows(
        "insert into rt.mark (tenant, kind, created_at)"
        " values ($1, 'run_event', rt.now() - interval '4 hours') returning id",
        rows.tenant,
    )
    found = await measured(rows.database, partitions)
    assert HOUR_S <= found["queue_oldest_age_seconds any"] < HOUR_S + 300  # the priority is no time waited
    assert 2 * HOUR_S <= found["queue_oldest_age_seconds workers"] < 2 * HOUR_S + 300
    assert (found["queue_length any"], found["queue_length workers"]) == (3, 1)
    assert 3 * HOUR_S <= found["timers_overdue_seconds"] < 3 * HOUR_S + 300
    assert 4 * HOUR_S <= found["marks_oldest_age_seconds"] < 4 * HOUR_S + 300
    await partitions.stop()


async def test_one_of_two_schedulers_measures(rows: LiveRows) -> None:
    one, two = new_partitions(rows.database), new_partitions(rows.database)
    for scheduler in (one, two, one, two):
        await scheduler.beat()
    tells = [bool(await measured(rows.database, scheduler)) for scheduler in (one, two)]
    assert sorted(tells) == [False, True]
    await one.stop()
    await two.stop()


async def test_who_may_have_lost_its_share_tells_nothing(rows: LiveRows) -> None:
    clock = TurnedClock()
    partitions = new_partitions(rows.database, clock)
    metrics = Metrics("scheduler")
    Backlog(rows.database, partitions, metrics, clock)
    await metrics.measure()
    assert told(metrics) == {}  # it has no share yet
    await partitions.beat()
    await metrics.measure()
    assert told(metrics)
    clock.ahead_s = 60
    await metrics.measure()
    assert told(metrics) == {}
    await partitions.stop()


async def test_it_is_measured_when_somebody_looks_and_not_for_each_of_many(rows: LiveRows) -> None:
    clock = TurnedClock()
    partitions = new_partitions(rows.database, clock)
    await partitions.beat()
    metrics = Metrics("scheduler")
    Backlog(rows.database, partitions, metrics, clock)
    assert told(metrics) == {}  # nobody has looked
    await asyncio.gather(*(metrics.measure() for _ in range(3)))
    await rows.start_one()
    await metrics.measure()
    assert told(metrics)["queue_length any"] == 0
    clock.ahead_s += KEPT_S
    await partitions.beat()
    await metrics.measure()
    assert told(metrics)["queue_length any"] == 1
    await partitions.stop()


async def test_without_the_database_nothing_is_told(rows: LiveRows, postgres_url: str) -> None:
    theirs = Database(postgres_url, name="scheduler", size=1)
    await theirs.open()
    partitions = new_partitions(rows.database)
    await partitions.beat()
    metrics = Metrics("scheduler")
    Backlog(theirs, partitions, metrics, SystemClock())
    await theirs.close()
    await metrics.measure()
    assert told(metrics) == {}
    await partitions.stop()
