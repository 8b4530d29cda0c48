"""A scheduler process of the model: its real duties, run by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from services.core.engine.accept_events import EventAcceptor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fan_out import FanOutMarks
from services.core.engine.fire_due import DueSchedules
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, Publisher
from services.core.engine.look_back import LookBack
from services.core.engine.look_backs import LookBacks
from services.core.engine.regate import Regater
from services.core.engine.run_events import RunEventMarks
from services.core.engine.send_events import SendEventMarks
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.scheduler.duties.arming import Arming
from services.scheduler.duties.cron import Cron
from services.scheduler.duties.gates import SweepGates
from services.scheduler.duties.marks import Marks
from services.scheduler.duties.owners import ForgetOwners
from services.scheduler.duties.paths import ForgetPaths
from services.scheduler.duties.rehint import Rehint
from services.scheduler.duties.rescue import Rescue
from services.scheduler.duties.send_events import FanOut, RunEvents, SendEvents
from services.scheduler.duties.timeout import Timeout
from services.scheduler.duties.usage import FoldUsage
from services.scheduler.duties.wake import Wake
from services.scheduler.partitions import Partitions
from services.scheduler.ticker import Duty
from tests.model.clock import MovedClock
from tests.model.executor import LEASE

_LONG_S = 60.0


class ModelScheduler:
    """One scheduler. It does nothing unless told to."""

    def __init__(self, url: str, publisher: Publisher, clock: MovedClock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._database = Database(url, name="model-scheduler", size=4)
        self._partitions = Partitions(url, node="model", clock=clock)
        self._duties = self._make(Hints(publisher))

    async def start(self) -> None:
        """Connect, and take a share of the partitions."""
        await self._database.open()
        await self._partitions.beat()

    async def close(self) -> None:
        """Leave."""
        await self._partitions.stop()
        await self._database.close()

    async def tick(self) -> None:
        """Do each duty once, one after another in any order."""
        self._clock.skip(_LONG_S)  # its next look is a look at everything
        self._rescue.wake()  # as the glance of a whole scheduler does that sees runs of the dead
        for duty in self._rng.sample(self._duties, len(self._duties)):
            await duty.run_once()
        await self._look_backs.idle()

    def _make(self, hints: Hints) -> Sequence[Duty]:
        database, clock = self._database, self._clock
        ids, definitions, theirs = UlidFactory(clock, self._rng), DefinitionsCache(None), DatabaseClock(clock)
        acceptor = EventAcceptor(database, definitions, hints, ids)
        marks = Marks(database, hints)
        self._look_backs = LookBacks(database, LookBack(database, hints))
        self._rescue = Rescue(database, hints, clock, LEASE, marks.nudge, settle_s=0.0)
        return [
            Wake(database, self._partitions, hints, clock, theirs),
            Cron(DueSchedules(database, definitions, hints, ids)),
            marks,
            Timeout(database, hints, marks.nudge),
            self._rescue,
            SendEvents(SendEventMarks(database, acceptor).sweep),
            FanOut(FanOutMarks(database, hints).sweep),
            RunEvents(RunEventMarks(database, acceptor).sweep),
            SweepGates(Gates(database, hints), Regater(database, definitions, hints)),
            Arming(self._look_backs),
            Rehint(database, hints, _nothing_pending),
            FoldUsage(database),
            ForgetOwners(database),
            ForgetPaths(database),
        ]


async def _nothing_pending() -> int:
    await asyncio.sleep(0)
    return 0
