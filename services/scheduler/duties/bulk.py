"""Works bulk jobs in the background (engine section 3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from services.core.engine.bulk_work import BulkWorker
from services.scheduler.duties.glance import woken

_BATCHES = 40


class Bulk:
    """The duty that does a batch of each job in turn. `nudge` when there is a job."""

    name = "bulk"

    def __init__(self, worker: BulkWorker) -> None:
        self._worker = worker
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Look at once."""
        self._nudged.set()

    async def idle(self) -> None:
        """Until nudged."""
        await woken(self._nudged)

    async def run_once(self) -> Mapping[str, int]:
        """Some batches. Raises Unavailable."""
        self._nudged.clear()
        done: Counter[str] = Counter()
        for _ in range(_BATCHES):
            worked = await self._worker.work()
            if worked is None:
                return done
            done.update(asdict(worked))
        self._nudged.set()
        return done
