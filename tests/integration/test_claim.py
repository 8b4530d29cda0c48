"""Executors over a real Postgres: who holds which run, and how many."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from services.core.domain.run import Status
from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.ids import ulid_text
from services.core.runtime.sealing import Sealer
from services.core.store.queries import queries
from tests.support.claiming import QUICK, Bodies, Gate, ended
from tests.support.engine import HandClock, ScriptedFunctions, database, executing, make_incarnation, postgres_url
from tests.support.fake_function import Answer, Request, Script
from tests.support.hand import Hand, playing
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]


async def test_c26_doubled_hints_claim_once(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(10)]
    bodies = Bodies()
    async with executing(hand.database, {"work": bodies}) as (executor, _):
        for _ in range(5):
            executor.hint(runs)
        await ended(rows, runs)
    assert bodies.executed == {(run, step): 1 for run in runs for step in "ab"}


async def test_two_executors_never_hold_one_run(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(80)]
    bodies = Bodies()
    scripts: dict[str, Script] = {"work": bodies}
    async with executing(hand.database, scripts) as (one, _), executing(hand.database, scripts) as (two, _):
        one.hint(runs)
        two.hint(reversed(runs))
        await ended(rows, runs)
    assert bodies.executed == {(run, step): 1 for run in runs for step in "ab"}
    assert await rows.value("select count(*) from rt.steps where run = any ($1)", runs) == 160


async def test_runs_are_found_without_any_hint(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(5)]
    async with executing(hand.database, {"work": Bodies()}):
        await ended(rows, runs)


async def test_a_hint_for_what_is_not_ready_is_nothing(hand: Hand, rows: LiveRows) -> None:
    later = await hand.start("work", delay_ms=DAY_MS)
    ready = await hand.start("work")
    async with executing(hand.database, {"work": Bodies()}) as (executor, functions):
        executor.hint([later, UUID(int=1), ready])
        await ended(rows, [ready])
    assert await rows.status(later) is Status.DELAYED
    assert {request["run"]["id"] for request in functions.requests} == {ulid_text(ready)}


async def test_no_more_runs_are_held_than_there_are_slots(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(20)]
    running = most = 0

    async def script(request: Request) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return {"op": "run_completed"}

    async with executing(hand.database, {"work": script}, slots=3) as (executor, _):
        executor.hint(runs)
        await ended(rows, runs)
        assert most == 3


async def test_an_executor_that_was_silent_has_room_again_when_it_is_heard(hand: Hand, rows: LiveRows) -> None:
    clock = HandClock()
    executor = make_incarnation(hand.database, ScriptedFunctions({}), clock=clock, lease=QUICK)
    clock.seconds += QUICK.ttl_s
    waiting = asyncio.create_task(executor.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.seconds -= QUICK.ttl_s
    assert await asyncio.wait_for(waiting, 10) == 64


async def test_hints_that_are_not_needed_soon_are_left_to_others(hand: Hand, rows: LiveRows) -> None:
    gate = Gate({"op": "run_completed"})
    async with executing(hand.database, {"work": gate}, slots=1) as (executor, _):
        run = await hand.start("work")
        executor.hint([run])

        async def is_held() -> bool:
            return run in executor.held

        await until(is_held)
        executor.hint(uuid4() for _ in range(10_000))
        waiting = asyncio.create_task(executor.wait_for_room())
        gate.open.set()
        await ended(rows, [run])
        assert await asyncio.wait_for(waiting, 30) == 1  # what was hinted is looked at first


async def test_enough_hints_are_no_room(hand: Hand, rows: LiveRows) -> None:
    executor = make_incarnation(hand.database, ScriptedFunctions({}))
    executor.hint(uuid4() for _ in range(255))
    assert await asyncio.wait_for(executor.wait_for_room(), 10) == 64
    executor.hint([uuid4()])
    waiting = asyncio.create_task(executor.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_p8_a_tenants_backlog_hides_nobody_elses_run(hand: Hand, rows: LiveRows, sealer: Sealer) -> None:
    for _ in range(60):
        await hand.start("work")
    small: list[UUID] = []
    for slug in ("small-1", "small-2"):
        tenant = await rows.value("select rt.create_tenant($1, '')", slug)
        async with rows.database.transaction() as connection:
            await create_project(connection, sealer, tenant, f"p-{tenant}", ProjectChange())
        async with playing(rows.database, tenant, f"p-{tenant}") as other:
            await other.declare({"name": "work"})
            small.append(await other.start("work"))
    gate = Gate()
    async with executing(hand.database, {"work": gate}, slots=6) as (executor, _):

        async def all_held() -> bool:
            return len(executor.held) == 6

        await until(all_held)
        assert set(small) <= set(executor.held)


async def test_a_quota_is_the_most_that_a_tenant_gets_and_the_oldest_go_first(rows: LiveRows) -> None:
    runs = [await rows.start_one() for _ in range(6)]
    other = await rows.value("select rt.create_tenant('quota', '')")
    async with rows.database.connection() as connection:
        claimed = await connection.fetch(
            queries("executor")["claim_oldest"], await rows.owner(), [other, rows.tenant], [5, 4], 100
        )
    assert {row["id"] for row in claimed} == set(runs[:4])
