"""Timers that are due and must not fire yet: of waits that still look back, and of runs whose own time is over."""

from __future__ import annotations

import pytest

from services.core.domain.run import Status
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.look_back import LookBack
from services.core.engine.look_backs import LookBacks
from tests.support.hand import ALL_PARTS
from tests.support.live_rows import LiveRows

_FIRE = "select fired, more from rt.fire_v1($1, 500)"
_EXPIRE = "select run from rt.expire_v1(500)"


async def fired(rows: LiveRows) -> tuple[int, bool]:
    row = await rows.row(_FIRE, ALL_PARTS)
    assert row is not None
    return row["fired"], row["more"]


async def test_a_wait_that_still_looks_back_does_not_time_out(rows: LiveRows) -> None:
    run = await rows.rest("w", [rows.wait("e", delay_ms=0, arming=True, lookback_ms=0)])
    assert await fired(rows) == (0, False)
    assert await rows.status(run) is Status.WAITING
    await rows.rows("update rt.wait set arming = false where run = $1", run)
    assert await fired(rows) == (1, False)
    assert await rows.status(run) is Status.QUEUED


async def test_a_look_back_that_does_not_end_is_not_waited_for_without_end(rows: LiveRows) -> None:
    run = await rows.rest("w", [rows.wait("e", delay_ms=0, arming=True, lookback_ms=0)])
    await rows.rows("update rt.wait set looked_at = rt.now() - interval '29 seconds' where run = $1", run)
    assert await fired(rows) == (0, False)
    await rows.rows("update rt.wait set looked_at = rt.now() - interval '31 seconds' where run = $1", run)
    assert await fired(rows) == (1, False)
    assert await rows.status(run) is Status.QUEUED


async def test_c8_however_late_it_is_somebody_looks_back_before_it_times_out(rows: LiveRows) -> None:
    """As after an outage: it has been due for an hour, and nobody could look."""
    run = await rows.rest("w", [rows.wait("e", delay_ms=0, arming=True, lookback_ms=0)])
    await rows.rows("update rt.wait set due_at = rt.now() - interval '1 hour' where run = $1", run)
    assert await fired(rows) == (0, False)
    looks = LookBacks(rows.database, LookBack(rows.database, Hints(NullPublisher())))
    assert await looks.sweep(0) == 1
    assert await rows.value("select looked_at is not null from rt.wait where run = $1", run)
    await looks.idle()
    assert await fired(rows) == (1, False)


@pytest.mark.parametrize("kind", ["s", "e", "d"])
async def test_a_run_whose_time_is_over_is_ended_and_not_woken(rows: LiveRows, kind: str) -> None:
    rests = {"s": "s", "e": "w", "d": "d"}[kind]
    run = await rows.rest(rests, [rows.wait(kind, delay_ms=60_000)], timeout_ms=1)
    await rows.rows("update rt.wait set due_at = rt.now() where run = $1", run)
    assert (await fired(rows))[0] == 0
    assert await rows.status(run) is Status(rests)
    assert [row["run"] for row in await rows.rows(_EXPIRE)] == [run]
    assert await rows.status(run) is Status.TIMED_OUT
