"""Rulings C24: one event that hits more runs than one transaction should lock."""

from __future__ import annotations

import json
import random
from uuid import UUID

import pytest

from services.core.domain.op import WaitForEvent
from services.core.engine import fan_out
from services.core.engine.fan_out import FanOutMarks
from services.core.engine.hints import Hints, NullPublisher
from services.core.store.database import Database
from tests.support.hand import Hand

RUNS = 40


@pytest.fixture
async def waiting(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Runs of which all wait for one event and may all be cancelled by another."""
    monkeypatch.setattr("services.core.engine.accept_batch.INLINE", 10)
    monkeypatch.setattr(fan_out, "_PIECE", 7)
    await hand.declare({"name": "w", "cancel_on": [{"event": "stop"}]})
    runs: list[UUID] = []
    for _ in range(RUNS):
        run = await hand.start("w")
        await hand.answer(run, WaitForEvent(id="e", name="e", event="go"))
        runs.append(run)
    return runs


async def test_c24_every_wait_is_resumed_once(hand: Hand, waiting: list[UUID], database: Database) -> None:
    accepted = await hand.send("go", '{"n":1}')
    assert accepted.resumed == RUNS
    async with database.connection() as connection:
        outputs = await connection.fetch("select output from rt.steps where sid = 'e' and status = 'c'")
        left = await connection.fetchval("select count(*) from rt.mark")
        queued = await connection.fetchval("select count(*) from rt.live where st = 'q'")
    assert [json.loads(row["output"])["data"] for row in outputs] == [{"n": 1}] * RUNS
    assert (left, queued) == (0, RUNS)


async def test_c24_every_run_is_cancelled(hand: Hand, waiting: list[UUID], database: Database) -> None:
    accepted = await hand.send("stop")
    assert accepted.cancelled == RUNS
    async with database.connection() as connection:
        statuses = await connection.fetch("select status from rt.ends")
        left = await connection.fetchval("select count(*) from rt.live") + await connection.fetchval(
            "select count(*) from rt.wait"
        )
    assert ([row["status"] for row in statuses], left) == (["cancelled"] * RUNS, 0)


async def test_c24_marks_left_behind_are_swept_and_other_events_win_meanwhile(
    hand: Hand, waiting: list[UUID], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object) -> int:
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(FanOutMarks, "carry_out", never)
        await hand.send("go", '{"n":1}')
    taken = random.Random(1).choice(waiting)
    await hand.cancel(taken)
    marks = FanOutMarks(database, Hints(NullPublisher()))
    while await marks.sweep(0):
        pass
    async with database.connection() as connection:
        count = await connection.fetchval("select count(*) from rt.steps where sid = 'e' and status = 'c'")
    assert count == RUNS - 1
