"""Bulk jobs of a hand's project, worked when the test says so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from services.core.domain.bulk_job import BulkJob
from services.core.domain.caller import Caller
from services.core.domain.run import Status
from services.core.domain.run_record import RunFilter
from services.core.engine.bulk_job import BulkJobs, BulkRequest
from services.core.engine.bulk_work import BulkWorker
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Jobs:
    """Jobs of the hand's project, worked when the test says so."""

    def __init__(self, hand: Hand, recorder: Recorder) -> None:
        self.hand = hand
        self.recorder = recorder
        self.caller = Caller(hand.tenant, "t", frozenset())
        self.nudged = 0
        self.jobs = BulkJobs(hand.database, hand.ids, SystemClock(), self._nudge)

    def _nudge(self) -> None:
        self.nudged += 1

    def worker(self) -> BulkWorker:
        """Another process that works jobs."""
        ids = UlidFactory(SystemClock(), random.Random())
        return BulkWorker(self.hand.database, DefinitionsCache(None), Hints(self.recorder), ids)

    async def ask(self, action: str, *, dry_run: bool = False, **wanted: Any) -> tuple[BulkJob, tuple[UUID, ...]]:
        wanted["states"] = frozenset(wanted.get("states", ()))
        request = BulkRequest(
            caller=self.caller,
            project=self.hand.project,
            action=action,
            wanted=RunFilter(**wanted),
            dry_run=dry_run,
            trace=TRACE,
        )
        return await self.jobs.start(request)

    async def start(self, action: str, **wanted: Any) -> UUID:
        job, _ = await self.ask(action, **wanted)
        assert job.id is not None
        async with self.hand.database.connection() as connection:
            # The first turn is a few milliseconds after the job was asked for.
            await connection.execute("update rt.bulk_job set turn_at = rt.now() where id = $1", job.id)
        return job.id

    async def get(self, id: UUID) -> BulkJob:
        return await self.jobs.get(self.hand.tenant, id)

    async def done(self, action: str, **wanted: Any) -> BulkJob:
        """A job that was worked to its end."""
        id = await self.start(action, **wanted)
        await self.work()
        return await self.get(id)

    async def work(self) -> int:
        """Work all there is; in how many batches."""
        worker, batches = self.worker(), 0
        async with asyncio.timeout(30):
            while not await is_idle(self.hand):
                batches += await worker.work() is not None
        return batches


async def is_idle(hand: Hand) -> bool:
    async with hand.database.connection() as connection:
        return not await connection.fetchval("select exists (select from rt.bulk_job where ended_at is null)")


@pytest.fixture
def jobs(hand: Hand, recorder: Recorder) -> Jobs:
    return Jobs(hand, recorder)


def counts(job: BulkJob) -> tuple[str, int, int, int, int]:
    return job.state, job.total, job.succeeded, job.skipped, job.failed


async def cancelled_runs(hand: Hand, count: int, **start: Any) -> list[UUID]:
    runs = [await hand.start("work", **start) for _ in range(count)]
    for run in runs:
        await hand.cancel(run)
    return runs


async def states(rows: LiveRows, runs: Sequence[UUID]) -> list[Status]:
    return [await rows.status(run) for run in runs]
