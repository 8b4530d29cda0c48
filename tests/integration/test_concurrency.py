"""Concurrency limits: how many runs have a slot, and who gets the next one (engine section 5, rulings C16 and C17)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from services.core.domain.op import OpError, RunCompleted, Sleep, StepCompleted, StepFailed
from services.core.domain.run import Status
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.regate import Regater
from services.scheduler.duties.gates import SweepGates
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows


def limited(*concurrency: Any) -> dict[str, Any]:
    return {"name": "work", "concurrency": list(concurrency)}


async def started(hand: Hand, *keys: str) -> list[UUID]:
    return [await hand.start("work", f'{{"k":"{key}"}}') for key in keys]


async def with_slot(rows: LiveRows, runs: list[UUID]) -> list[int]:
    """The places, in the list, of the runs that have a slot."""
    found = {row["id"] for row in await rows.rows("select id from rt.live where slot")}
    return [place for place, run in enumerate(runs) if run in found]


async def sweep(rows: LiveRows) -> None:
    """A pass of the scheduler."""
    hints = Hints(NullPublisher())
    await SweepGates(Gates(rows.database, hints), Regater(rows.database, DefinitionsCache(None), hints)).run_once()


async def test_c16_both_of_two_limits_hold_at_once(hand: Hand, rows: LiveRows) -> None:
    await hand.declare(limited({"limit": 1, "key": "event.data.k"}, 3))
    runs = await started(hand, "a", "a", "b", "c", "d")
    await sweep(rows)
    assert await with_slot(rows, runs) == [0, 2, 3]
    await hand.answer(runs[2], RunCompleted(output="1"))
    await sweep(rows)
    assert await with_slot(rows, runs) == [0, 3, 4], "the second a waits for the first, whatever room there is"
    await hand.answer(runs[0], RunCompleted(output="1"))
    await sweep(rows)
    assert await with_slot(rows, runs) == [1, 3, 4]


@pytest.mark.parametrize("wide", [[3], [3, {"limit": 3, "key": "event.data.k"}]])
async def test_c16_the_limits_of_one_workflow_are_not_those_of_another(
    hand: Hand, rows: LiveRows, wide: list[Any]
) -> None:
    narrow = [each - 2 if isinstance(each, int) else {**each, "limit": 1} for each in wide]
    await hand.declare({"name": "narrow", "concurrency": narrow}, {"name": "wide", "concurrency": wide})
    runs = {name: [await hand.start(name, '{"k":"a"}') for _ in range(5)] for name in ("narrow", "wide")}
    for _ in range(2):
        await sweep(rows)
        assert {name: await with_slot(rows, some) for name, some in runs.items()} == {"narrow": [0], "wide": [0, 1, 2]}


async def test_c16_limits_can_be_changed_while_runs_wait(hand: Hand, rows: LiveRows) -> None:
    await hand.declare(limited(1))
    runs = await started(hand, *"abcde")
    await sweep(rows)
    assert await with_slot(rows, runs) == [0]
    await hand.declare(limited(3))
    await sweep(rows)
    assert await with_slot(rows, runs) == [0, 1, 2]
    await hand.declare(limited(1))
    await hand.answer(runs[0], RunCompleted(output="1"))
    await hand.answer(runs[1], RunCompleted(output="1"))
    await sweep(rows)
    assert await with_slot(rows, runs) == [2], "nobody is thrown out, and nobody comes in before there is room"


async def test_a_limit_that_is_taken_away_lets_everyone_through(hand: Hand, rows: LiveRows) -> None:
    await hand.declare(limited(1))
    runs = await started(hand, *"abc")
    await hand.declare({"name": "work"})
    assert not await rows.claim(await rows.owner(), runs), "what had a slot was let through by a limit of before"
    await sweep(rows)
    for run in runs:
        assert await hand.answer(run, RunCompleted(output="1")) is Status.COMPLETED


async def test_c16_many_at_once_never_pass_a_limit(hand: Hand, rows: LiveRows) -> None:
    await hand.declare(limited(2))
    runs = await started(hand, *map(str, range(12)))
    for left in range(12, 0, -1):
        await asyncio.gather(*(sweep(rows) for _ in range(6)))
        holders = await with_slot(rows, runs)
        assert len(holders) == min(2, left)
        await hand.answer(runs[holders[0]], RunCompleted(output="1"))


async def test_a_sleeping_run_and_one_in_its_backoff_hold_no_slot(hand: Hand, rows: LiveRows) -> None:
    await hand.declare(limited(1))
    runs = await started(hand, "sleeps", "fails", "waits")
    await sweep(rows)
    assert await hand.answer(runs[0], Sleep(id="z", name="z", for_ms=60_000)) is Status.SLEEPING
    await sweep(rows)
    assert await with_slot(rows, runs) == [1]
    assert await hand.answer(runs[1], StepFailed(id="s", name="s", error=OpError("E", "no"))) is Status.DELAYED
    await sweep(rows)
    assert await with_slot(rows, runs) == [2]


async def test_the_next_slot_is_for_who_waits_longest_since_it_last_ran(hand: Hand, rows: LiveRows) -> None:
    await hand.declare(limited(1))
    runs = await started(hand, "slept", "second", "third")
    await sweep(rows)
    await hand.answer(runs[0], Sleep(id="z", name="z", for_ms=60_000))
    await sweep(rows)
    await hand.fire(runs[0])  # it is the oldest run, but has waited less long than the third
    assert await hand.answer(runs[1], StepCompleted(id="s", name="s", output="1"), RunCompleted(output="1"))
    await sweep(rows)
    assert await with_slot(rows, runs) == [2]
    await hand.answer(runs[2], RunCompleted(output="1"))
    await sweep(rows)
    assert await with_slot(rows, runs) == [0]


async def test_a_condition_of_cancel_on_sees_both_events(hand: Hand, rows: LiveRows) -> None:
    condition = "async.data.k == event.data.k && async.data.hard"
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop", "if": condition}]})
    a, b = await started(hand, "a", "b")
    soft, other, hard = [
        await hand.send("stop", data) for data in ('{"k":"a"}', '{"k":"c","hard":true}', '{"k":"a","hard":true}')
    ]
    assert [soft.cancelled, other.cancelled, hard.cancelled] == [0, 0, 1]
    assert (await rows.status(a), await rows.status(b)) == (Status.CANCELLED, Status.QUEUED)
