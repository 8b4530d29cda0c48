"""What one tenant takes of an executor while others wait (rulings P8, architecture section 6, invariant 8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.ids import ulid_uuid
from services.core.runtime.sealing import Sealer
from services.executor.incarnation import Incarnation
from tests.support.engine import PATIENT, QuickClock, executing
from tests.support.fake_function import Answer, Request, completed
from tests.support.hand import Hand, playing
from tests.support.live_rows import LiveRows
from tests.support.waiting import until

SLOTS = 8


@pytest.fixture
async def others(rows: LiveRows, sealer: Sealer) -> AsyncIterator[list[Hand]]:
    """Three more tenants, with a workflow `work` each."""
    async with contextlib.AsyncExitStack() as playing_all:
        hands = []
        for number in range(3):
            tenant = await rows.value("select rt.create_tenant($1, '')", f"other-{number}")
            async with rows.database.transaction() as connection:
                await create_project(connection, sealer, tenant, f"p-{tenant}", ProjectChange())
            other = await playing_all.enter_async_context(playing(rows.database, tenant, f"p-{tenant}"))
            await other.declare({"name": "work"})
            hands.append(other)
        yield hands


class Bodies:
    """A function whose bodies last: for a while, or until they are let go. Counts those that began, by run."""

    def __init__(self, seconds: float | None, *, steps: int = 0) -> None:
        self.begun: Counter[UUID] = Counter()
        self.over = asyncio.Event()
        self._seconds = seconds
        self._steps = steps

    async def __call__(self, request: Request) -> Answer:
        self.begun[ulid_uuid(request["run"]["id"])] += 1
        if self._seconds is None:
            await self.over.wait()
        else:
            await asyncio.sleep(self._seconds)
        done = len(request["steps"])
        return completed(f"s{done}") if done < self._steps and not self.over.is_set() else {"op": "run_completed"}

    async def reached(self, run: UUID, guard_s: float = 40.0) -> None:
        """Wait until the run's function was called."""

        async def is_begun() -> bool:
            return self.begun[run] > 0

        await until(is_begun, guard_s)


async def started(hand: Hand, count: int) -> list[UUID]:
    return [await hand.start("work") for _ in range(count)]


async def shares(rows: LiveRows) -> Mapping[int, int]:
    found = await rows.rows("select tenant, count(*) as n from rt.live where st = 'r' group by tenant")
    return {row["tenant"]: row["n"] for row in found}


async def fed(executor: Incarnation, runs: list[UUID]) -> None:
    """Hints that never stop, as with a backlog that is in the stream."""
    while True:
        executor.hint(runs)
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def feeding(executor: Incarnation, runs: list[UUID]) -> AsyncIterator[None]:
    feeder = asyncio.create_task(fed(executor, runs))
    try:
        yield
    finally:
        feeder.cancel()
        await asyncio.wait({feeder})


async def test_p8_hints_of_a_backlog_do_not_keep_another_tenants_run_from_its_slot(
    hand: Hand, others: list[Hand], rows: LiveRows
) -> None:
    backlog = await started(hand, 400)
    bodies = Bodies(0.03)
    async with executing(rows.database, {"work": bodies}, slots=SLOTS) as (executor, _):
        async with feeding(executor, backlog):

            async def is_busy() -> bool:
                return len(bodies.begun) > SLOTS

            await until(is_busy, 40.0)
            for other in others:
                await bodies.reached(await other.start("work"))
        assert len(bodies.begun) < len(backlog), "it was there before the backlog was done"
        bodies.over.set()


async def test_p8_calls_that_take_minutes_leave_room_for_the_next_tenants(
    hand: Hand, others: list[Hand], rows: LiveRows
) -> None:
    backlog = await started(hand, 3 * SLOTS)
    bodies = Bodies(None)
    async with executing(rows.database, {"work": bodies}, slots=SLOTS) as (executor, _), feeding(executor, backlog):
        await bodies.reached(backlog[0])
        small = await others[0].start("work")
        executor.hint([small])
        await bodies.reached(small)
        assert (await shares(rows))[hand.tenant] == SLOTS - 1
        bodies.over.set()


async def test_p8_runs_that_go_on_and_on_make_room_until_all_tenants_have_the_same(
    hand: Hand, others: list[Hand], rows: LiveRows
) -> None:
    bodies = Bodies(0.01, steps=100_000)
    mine = await started(hand, 2 * SLOTS)
    async with executing(rows.database, {"work": bodies}, slots=SLOTS) as (executor, _):
        executor.hint(mine)
        await bodies.reached(mine[0])
        theirs = await started(others[0], 2 * SLOTS)
        executor.hint(theirs)

        async def is_even() -> bool:
            found = await shares(rows)
            return min(found.get(tenant, 0) for tenant in (hand.tenant, others[0].tenant)) >= 3

        await until(is_even, 40.0)
        bodies.over.set()

        async def all_ended() -> bool:
            ended = await rows.value("select count(*) from rt.ends where status = 'completed'")
            return bool(ended == 4 * SLOTS)

        await until(all_ended, 30.0)
    assert await rows.value("select count(*) from rt.attempts") == 0, "making room is no attempt"


async def test_p8_where_there_are_more_tenants_than_slots_they_take_turns(
    hand: Hand, others: list[Hand], rows: LiveRows
) -> None:
    bodies = Bodies(0.01, steps=100_000)
    runs = [await each.start("work") for each in (hand, *others)]
    options: dict[str, Any] = {"slots": 2, "lease": PATIENT, "clock": QuickClock()}
    async with executing(rows.database, {"work": bodies}, **options):
        for run in runs:
            await bodies.reached(run)
        bodies.over.set()


async def test_a_tenant_that_is_the_only_one_has_all_slots(hand: Hand, rows: LiveRows) -> None:
    backlog = await started(hand, 2 * SLOTS)
    bodies = Bodies(None)
    async with executing(rows.database, {"work": bodies}, slots=SLOTS) as (executor, _):
        executor.hint(backlog)

        async def is_full() -> bool:
            return len(bodies.begun) == SLOTS

        await until(is_full)
        bodies.over.set()


async def test_freed_slots_are_taken_at_once_also_without_hints(hand: Hand, rows: LiveRows) -> None:
    backlog = await started(hand, 40 * SLOTS)
    bodies = Bodies(0.03)
    began = asyncio.get_running_loop().time()
    async with executing(rows.database, {"work": bodies}, slots=SLOTS):

        async def all_ended() -> bool:
            return bool(await rows.value("select count(*) from rt.ends") == len(backlog))

        await until(all_ended, 30.0)
    assert asyncio.get_running_loop().time() - began < 40 * 0.2, "not a look every quarter of a second"


async def test_of_two_leases_of_one_run_the_earlier_cannot_give_back_the_later(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    first = await hand.hold(run)
    assert first is not None
    await hand.let_go(first)
    second = await hand.hold(run)
    assert second is not None
    await hand.let_go(first)
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["epoch"]) == ("r", second.epoch)


async def test_a_run_that_was_given_back_goes_on_before_those_that_came_since(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    lease = await hand.hold(run)
    assert lease is not None
    later = await hand.start("work")
    await hand.let_go(lease)
    order = await rows.rows("select id from rt.live where st = 'q' order by qk")
    assert [row["id"] for row in order] == [run, later]
