"""What the benchmark counts after a mark: every run that is created later, whatever clock has stamped its id."""

from __future__ import annotations

import random
from uuid import UUID

from services.core.domain.op import RunCompleted, StepCompleted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.start_request import StartRequest
from services.core.engine.start_run import RunStarter
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database
from tests.bench.mark import ended_since, mark_now, steps_since
from tests.support.hand import Hand


class Behind(SystemClock):
    """A clock that is a second late."""

    def unix_ms(self) -> int:
        return super().unix_ms() - 1_000


async def start_late(hand: Hand) -> UUID:
    ids = UlidFactory(Behind(), random.Random(1))
    starter = RunStarter(hand.database, DefinitionsCache(None), Hints(NullPublisher()), ids)
    request = StartRequest(tenant=hand.tenant, project=hand.project, workflow="work", data="{}")
    return (await starter.start(request)).run


async def finish(hand: Hand, run: UUID) -> None:
    await hand.answer(run, StepCompleted(id="one", name="one", output="1"), RunCompleted(output="1"))


async def test_a_run_whose_id_is_behind_the_clock_is_counted_and_those_from_before_are_not(
    hand: Hand, database: Database
) -> None:
    await finish(hand, await hand.start("work"))
    open_before = await hand.start("work")
    async with database.connection() as connection:
        mark = await mark_now(connection)
        counts = []
        for run in (open_before, await start_late(hand), await hand.start("work")):
            await finish(hand, run)
            counts.append((await ended_since(connection, mark), await steps_since(connection, mark)))
    assert counts == [(0, 0), (1, 1), (2, 2)]
