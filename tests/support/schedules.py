"""Stories about cron triggers: one project, a clock that stands still, and schedulers that look when they are told."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from services.core.domain.schedule_record import ScheduleRecord
from services.core.domain.tick import instant_text
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fire_due import DueSchedules, Fired
from services.core.engine.fire_schedule import ScheduleFirer
from services.core.engine.hints import Hints
from services.core.engine.schedules import ScheduleKey, Schedules
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database
from tests.support.live_rows import LiveRows, Recorder
from tests.support.still_clock import StillClock


def scheduler(database: Database, hints: Recorder) -> DueSchedules:
    """What one scheduler process has of its own."""
    return DueSchedules(database, DefinitionsCache(None), Hints(hints), _ids())


def firer(database: Database, hints: Recorder) -> ScheduleFirer:
    """What fires triggers by hand, as one process has it."""
    return ScheduleFirer(database, DefinitionsCache(None), Hints(hints), _ids())


def cron(expression: str, **more: Any) -> dict[str, Any]:
    """A cron trigger of a definition."""
    return {"cron": expression, **more}


def workflow(name: str, *triggers: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A definition."""
    return {"name": name, "triggers": list(triggers), **more}


class ScheduleStory:
    """The tenant's project `default`. Instants are ISO-8601 texts."""

    def __init__(self, rows: LiveRows, clock: StillClock, hints: Recorder) -> None:
        self.rows = rows
        self.clock = clock
        self.hints = hints
        self.due = scheduler(rows.database, hints)
        self.by_hand = firer(rows.database, hints)
        self.schedules = Schedules(rows.database)
        self.declarer = Declarer(rows.database, lambda _: None)

    async def declare(self, *workflows: dict[str, Any]) -> None:
        """Replace the project's list."""
        await self.declarer.declare(self.rows.tenant, "default", json.dumps({"workflows": workflows}).encode())

    async def pause(self, name: str, *, is_active: bool = False) -> None:
        """Pause a workflow, or let it go on."""
        await self.declarer.set_active(self.rows.tenant, "default", name, is_active)

    async def switch(self, name: str, trigger: int, *, is_active: bool) -> ScheduleRecord:
        """Switch one trigger."""
        return await self.schedules.set_active(self.rows.tenant, ScheduleKey("default", name, trigger), is_active)

    async def at(self, instant: str) -> Fired:
        """Let the scheduler look at an instant."""
        await self.clock.set(instant)
        return await self.due.fire()

    async def listed(self) -> list[ScheduleRecord]:
        """All triggers."""
        return await self.schedules.page(self.rows.tenant, "default", after=None, limit=200)

    async def next_at(self, name: str, trigger: int = 0) -> str | None:
        """The next tick of a trigger."""
        (found,) = (each for each in await self.listed() if (each.workflow, each.trigger) == (name, trigger))
        return instant_text(datetime.fromtimestamp(found.next_ms[0] / 1_000, tz=UTC)) if found.next_ms else None

    async def ticks(self, name: str | None = None) -> list[str]:
        """The instants for which runs were started, in order."""
        found = await self.rows.rows(
            "select r.event_data from rt.runs r join rt.workflows w on w.id = r.wf "
            "where r.source = 'cron' and ($1::text is null or w.name = $1)",
            name,
        )
        return sorted(json.loads(row["event_data"])["scheduled_at"] for row in found)


@pytest.fixture
def story(rows: LiveRows, still_clock: StillClock, recorder: Recorder) -> ScheduleStory:
    """A story in the default tenant."""
    return ScheduleStory(rows, still_clock, recorder)


def _ids() -> UlidFactory:
    return UlidFactory(SystemClock(), random.Random())
