"""Case 22 of `tests/vectors/data/cases.jsonl`: an executor is killed between a commit and what follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from services.core.domain.run import Status
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.regate import Regater
from services.core.runtime.clock import SystemClock
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import LeaseSettings
from services.executor.incarnation import Incarnation
from services.scheduler.duties.gates import SweepGates
from services.scheduler.duties.rescue import Rescue
from tests.support.engine import ScriptedFunctions, kill, living, make_incarnation
from tests.support.fake_function import completed, replaying
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.waiting import until

RUNS = 21
LEASE = LeaseSettings(ttl_s=30.0, heartbeat_s=0.5)


class Guillotine:
    """A probe that stops the executor for ever right after its n-th commit, before anything follows from it."""

    def __init__(self, commits: int) -> None:
        self.left = commits
        self.fell = asyncio.Event()

    async def __call__(self, point: str) -> None:
        if point != "after commit":
            return
        self.left -= 1
        if self.left <= 0:
            self.fell.set()
            await asyncio.Event().wait()


class ToTheLiving(NullPublisher):
    """Hints reach the executor that lives."""

    executor: Incarnation | None = None

    def publish_ready(self, run_ids: Sequence[UUID], traceparent: str) -> None:
        """See `Publisher`."""
        if self.executor is not None:
            self.executor.hint(run_ids)


# Each run commits its step, then its end.
@pytest.mark.parametrize("commits", [1, 2])
async def test_case_22_crash_between_persist_and_dispatch(
    hand: Hand, rows: LiveRows, sealer: Sealer, commits: int
) -> None:
    await hand.declare({"name": "work", "concurrency": 1})
    runs = [await hand.start("work") for _ in range(RUNS)]
    functions = ScriptedFunctions({"work": replaying(completed("s"), output="done")})
    probe = Guillotine(commits)
    bus = ToTheLiving()
    options: dict[str, Any] = {"lease": LEASE, "definitions": DefinitionsCache(sealer), "publisher": bus}
    doomed = bus.executor = make_incarnation(rows.database, functions, probe=probe, **options)
    await doomed.owner.register()
    life = asyncio.create_task(doomed.run())
    await sweeping(rows, Hints(bus)).run_once()  # the first run gets the slot
    await asyncio.wait_for(probe.fell.wait(), 30)
    await kill(rows.database, doomed, life)
    bus.executor = make_incarnation(rows.database, functions, **options)
    async with living(bus.executor):
        await tick_until_ended(rows, runs, Hints(bus))
    assert {await rows.status(run) for run in runs} == {Status.COMPLETED}
    executed = [request["run"]["id"] for request in functions.requests if "s" not in request["steps"]]
    assert len(executed) == len(set(executed)) == RUNS


def sweeping(rows: LiveRows, hints: Hints) -> SweepGates:
    return SweepGates(Gates(rows.database, hints), Regater(rows.database, DefinitionsCache(None), hints))


async def tick_until_ended(rows: LiveRows, runs: Sequence[UUID], hints: Hints) -> None:
    """What a scheduler does meanwhile."""
    gates = sweeping(rows, hints)
    rescue = Rescue(rows.database, hints, SystemClock(), LEASE, lambda: None, settle_s=0)

    async def ended() -> bool:
        await rescue.run_once()
        await gates.run_once()
        return bool(await rows.value("select count(*) = 0 from rt.live where id = any ($1)", runs))

    await until(ended, guard_s=60)
