"""Waiting for the ends of runs, with a database that is away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.core.domain.op import RunCompleted
from services.core.runtime.clock import SystemClock
from services.core.store.database import Database
from services.core.store.runs import RunReader
from services.ingest.run_ends import RunEnds
from tests.support.hand import Hand


@pytest.fixture
async def reads(postgres_url: str) -> AsyncIterator[Database]:
    """A pool that is not open yet: as a database that is away."""
    database = Database(postgres_url, name="test-reads")
    yield database
    await database.close()


async def test_a_database_that_is_away_delays_the_news_and_loses_none(hand: Hand, reads: Database) -> None:
    ends = RunEnds(RunReader(reads), SystemClock())
    looking = asyncio.create_task(ends.run())
    run = await hand.start("work")
    await hand.answer(run, RunCompleted())
    waiting = asyncio.create_task(ends.wait(run, 30))
    await asyncio.wait({waiting}, timeout=0.2)
    assert not waiting.done()
    assert not looking.done()
    await reads.open()
    async with asyncio.timeout(5):
        await waiting
    looking.cancel()


async def test_a_caller_that_gives_up_is_forgotten_and_others_wait_on(hand: Hand, database: Database) -> None:
    ends = RunEnds(RunReader(database), SystemClock())
    looking = asyncio.create_task(ends.run())
    runs = [await hand.start("work") for _ in range(2)]
    gone, stays = (asyncio.create_task(ends.wait(run, 30)) for run in runs)
    await asyncio.wait({gone}, timeout=0.1)
    gone.cancel()
    await asyncio.wait({gone})
    await hand.answer(runs[1], RunCompleted())
    async with asyncio.timeout(5):
        await stays
    looking.cancel()
