"""The ticker: every duty on its own, whatever happens to the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from services.core.domain.errors import Unavailable
from services.scheduler.ticker import PeriodicDuty, Ticker

GUARD_S = 10.0


class Counting(PeriodicDuty):
    """Counts its runs and raises what it is given, once each."""

    period_s = 0.01

    def __init__(self, name: str, *faults: Exception) -> None:
        self.name = name
        self.runs = 0
        self._faults = list(faults)
        self._turn = asyncio.Event()

    async def run_once(self) -> Mapping[str, int]:
        self.runs += 1
        self._turn.set()
        if self._faults:
            raise self._faults.pop(0)
        return {"done": 1}

    async def reach(self, runs: int) -> None:
        async with asyncio.timeout(GUARD_S):
            while self.runs < runs:
                self._turn.clear()
                await self._turn.wait()


@asynccontextmanager
async def ticking(*duties: Counting) -> AsyncIterator[Ticker]:
    ticker = Ticker(duties)
    task = asyncio.create_task(ticker.run())
    try:
        yield ticker
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_duty_that_fails_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    broken, fine = Counting("broken", ValueError("a bug")), Counting("fine")
    async with ticking(broken, fine):
        await broken.reach(1)
        await fine.reach(20)
        await broken.reach(3)  # after a second's rest it works again
    faults = [record for record in caplog.records if record.message == "duty failed"]
    assert [vars(record)["duty"] for record in faults] == ["broken"]
    assert faults[0].exc_info is not None


async def test_an_absent_database_is_one_line_and_then_quiet_until_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    away = Counting("away", *(Unavailable("the database is away") for _ in range(3)))
    async with ticking(away):
        await away.reach(5)
    lines = [record.message for record in caplog.records]
    assert lines == ["duty waits for the database", "duty goes on"]


async def test_a_drain_lets_the_running_duty_end_and_starts_nothing_more() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    ended: list[int] = []

    class Slow(Counting):
        async def run_once(self) -> Mapping[str, int]:
            begun.set()
            await may_end.wait()
            ended.append(1)
            return {}

    idle = Counting("idle")
    idle.period_s = 3_600
    async with ticking(Slow("slow"), idle) as ticker:
        await begun.wait()
        await idle.reach(1)
        drain = asyncio.create_task(ticker.drain())
        await asyncio.sleep(0)
        assert not drain.done()
        may_end.set()
        await asyncio.wait_for(drain, GUARD_S)
    assert ended == [1]
    assert idle.runs == 1


async def test_a_drain_ends_the_rest_after_a_fault() -> None:
    broken = Counting("broken", ValueError("a bug"))
    async with ticking(broken) as ticker:
        await broken.reach(1)
        await asyncio.wait_for(ticker.drain(), 0.5)
    assert broken.runs == 1
