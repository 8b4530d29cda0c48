"""Executors over a real Postgres: what becomes of held runs when they drain, are declared dead, or crash."""

from __future__ import annotations

import asyncio

import pytest

from services.core.domain.run import Status
from services.executor.owner import OwnerLost
from tests.support.claiming import QUICK, Bodies, Gate, ended
from tests.support.engine import ScriptedFunctions, database, executing, kill, living, make_incarnation, postgres_url
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]


async def test_o8_a_drain_lets_the_step_end_and_gives_the_run_back_without_an_attempt(
    hand: Hand, rows: LiveRows
) -> None:
    run, untouched = await hand.start("work"), None
    gate = Gate(completed("a"))
    async with executing(hand.database, {"work": gate}) as (executor, functions):
        executor.hint([run])
        await functions.until(lambda: len(functions.requests) == 1)
        draining = asyncio.create_task(executor.drain())
        untouched = await hand.start("work")
        executor.hint([untouched])
        gate.open.set()
        await draining
        assert len(executor.held) == 0
        assert len(functions.requests) == 1
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"], live["epoch"], live["rev"], live["steps"]) == ("q", None, 2, 1, 1)
    assert (live["fn_att"], live["att"]) == (0, 0)
    assert await rows.status(untouched) is Status.QUEUED
    assert await rows.value("select count(*) from rt.owner") == 0


async def test_o8_what_is_still_held_at_the_end_goes_back_without_an_attempt(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(5)]
    async with executing(hand.database, {"work": Gate()}) as (executor, functions):
        executor.hint(runs)
        await functions.until(lambda: len(functions.requests) == 5)
    for run in runs:
        live = await rows.live(run)
        assert live is not None
        assert (live["st"], live["owner"], live["fn_att"], live["att"]) == ("q", None, 0, 0)
    assert len(functions.stopped) == 5


async def test_c18_a_dead_owner_drops_everything_and_its_late_answers_count_for_nothing(
    hand: Hand, rows: LiveRows
) -> None:
    run = await hand.start("work")
    functions = ScriptedFunctions({"work": Gate(completed("late"))})
    executor = make_incarnation(hand.database, functions, lease=QUICK)
    async with living(executor) as life:
        executor.hint([run])
        await functions.until(lambda: len(functions.requests) == 1)
        await rows.rows("update rt.owner set dead = true where id = $1 returning id", executor.owner.id)
        await rows.rows("select * from rt.rescue_v1(100)")
        async with asyncio.timeout(10):
            with pytest.raises(ExceptionGroup) as raised:
                await life
        assert raised.value.subgroup(OwnerLost) is not None

        async def stopped() -> bool:
            return len(functions.stopped) == 1

        await until(stopped)
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["fn_att"]) == ("q", 1), "WorkerLost is an attempt of the function"
    assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0


class Crash:
    """Stops for ever at the `count`-th time that a commit point is reached; `reached` says that it was."""

    def __init__(self, point: str, count: int) -> None:
        self._point = point
        self._left = count
        self.reached = asyncio.Event()

    async def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left <= 0:
                self.reached.set()
                await asyncio.Event().wait()


@pytest.mark.parametrize("point", ["before commit", "after commit", "before effects"])
async def test_case_22_a_crash_at_any_commit_point_loses_nothing_and_repeats_only_what_was_not_stored(
    hand: Hand, rows: LiveRows, point: str
) -> None:
    runs = [await hand.start("work") for _ in range(21)]
    bodies = Bodies()
    crash = Crash(point, count=12)
    first = make_incarnation(hand.database, ScriptedFunctions({"work": bodies}), probe=crash, slots=21)
    await first.owner.register()
    life = asyncio.create_task(first.run())
    first.hint(runs)
    await asyncio.wait_for(crash.reached.wait(), 20)
    await kill(hand.database, first, life)
    stored = {(row["run"], row["sid"]) for row in await rows.rows("select run, sid from rt.steps")}
    executed = dict(bodies.executed)
    await rows.rows("update rt.owner set dead = true where id = $1 returning id", first.owner.id)
    await rows.rows("select * from rt.rescue_v1(100)")
    async with executing(hand.database, {"work": bodies}):
        await ended(rows, runs)
    for key, times in bodies.executed.items():
        allowed = 1 if key in stored or key not in executed else 2
        assert times <= allowed, "what was stored before the crash is not executed again"
    assert await rows.value("select count(*) from rt.steps where run = any ($1)", runs) == 42
    assert await rows.value("select count(*) from rt.live") == 0
