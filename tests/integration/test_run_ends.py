"""Waiting for the ends of runs, with a database that is away for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest

from services.core.domain.op import RunCompleted
from services.core.runtime.clock import SystemClock
from services.core.store.database import Database
from services.core.store.runs import RunReader
from services.ingest.run_ends import RunEnds
from tests.support.hand import Hand


class Looks(RunReader):
    """A reader that tells of its looks, once they are over."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.of: list[set[UUID]] = []
        self._over = asyncio.Condition()

    async def ended_among(self, runs: Sequence[UUID]) -> set[UUID]:
        try:
            return await super().ended_among(runs)
        finally:
            async with self._over:
                self.of.append(set(runs))
                self._over.notify_all()

    async def come(self, of: set[UUID], count: int = 1) -> None:
        """Wait until so many looks at all of these are over."""
        async with asyncio.timeout(10), self._over:
            await self._over.wait_for(lambda: sum(of <= runs for runs in self.of) >= count)


@pytest.fixture
async def reads(postgres_url: str) -> AsyncIterator[Database]:
    """A pool that is not open yet: as a database that is away."""
    database = Database(postgres_url, name="test-reads")
    yield database
    await database.close()


async def test_a_database_that_is_away_delays_the_news_and_loses_none(hand: Hand, reads: Database) -> None:
    looks = Looks(reads)
    ends = RunEnds(looks, SystemClock())
    looking = asyncio.create_task(ends.run())
    run = await hand.start("work")
    await hand.answer(run, RunCompleted())
    waiting = asyncio.create_task(ends.wait(run, 3_600))
    await looks.come({run}, 3)
    assert not waiting.done()
    assert not looking.done()
    await reads.open()
    async with asyncio.timeout(30):
        await waiting
    looking.cancel()


async def test_a_caller_that_gives_up_is_forgotten_and_others_wait_on(hand: Hand, database: Database) -> None:
    looks = Looks(database)
    ends = RunEnds(looks, SystemClock())
    looking = asyncio.create_task(ends.run())
    runs = [await hand.start("work") for _ in range(2)]
    gone, stays = (asyncio.create_task(ends.wait(run, 3_600)) for run in runs)
    await looks.come(set(runs))
    gone.cancel()
    await asyncio.wait({gone})
    await hand.answer(runs[1], RunCompleted())
    async with asyncio.timeout(30):
        await stays
    looking.cancel()
