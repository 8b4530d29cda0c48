"""Functions for runs that executors claim, one that counts and one that waits, and the end of these runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from services.core.domain.run import Status
from services.core.runtime.ids import ulid_uuid
from services.core.runtime.settings import LeaseSettings
from tests.support.fake_function import Answer, Request, completed
from tests.support.live_rows import LiveRows
from tests.support.waiting import until

QUICK = LeaseSettings(ttl_s=3.0, heartbeat_s=0.1)


async def ended(rows: LiveRows, runs: Sequence[UUID], status: Status = Status.COMPLETED) -> None:
    """Wait until all of these runs have ended so."""

    async def all_ended() -> bool:
        count = await rows.value(
            "select count(*) from rt.ends where run = any ($1) and status = $2", runs, status.value
        )
        return bool(count == len(runs))

    await until(all_ended, 30.0)


class Bodies:
    """A workflow of two steps that counts how often each step's body is executed, by run."""

    def __init__(self) -> None:
        self.executed: Counter[tuple[UUID, str]] = Counter()

    def __call__(self, request: Request) -> Answer:
        for step in ("a", "b"):
            if step not in request["steps"]:
                self.executed[ulid_uuid(request["run"]["id"]), step] += 1
                return completed(step, step)
        return {"op": "run_completed", "output": None}


class Gate:
    """A function that answers only when it is let."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.open = asyncio.Event()

    async def __call__(self, request: Request) -> Answer:
        await self.open.wait()
        return self.answers.pop(0)
