"""Removes what is older than its retention: runs, events, usage, bulk jobs (engine section 11; rulings O6).

Each tenant has its time of the day. A batch is one transaction of one tenant; all schedulers together keep one pace, so
that pruning is never felt. Where a tenant's pass stands is stored, so whoever is next goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.runtime.settings import RetentionSettings
from services.core.store.database import Database
from services.core.store.retention import (
    Turn,
    delete_events,
    delete_jobs,
    delete_runs,
    delete_usage,
    go_on,
    old_events,
    old_runs,
    pass_over,
    set_pace,
    take_turn,
)

log = logging.getLogger(__name__)

BATCH = 500
WEIGHT = 5_000
ROWS_PER_S = 10_000

_STAGES = ("runs", "events", "usage", "jobs")
_LONGEST_PAUSE_S = 60.0
_ELSEWHERE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of a batch: rows that went, rows they cost, and where to go on; `over`: the stage has no more."""

    removed: int = 0
    weight: int = 0
    after_at: datetime | None = None
    after_id: UUID | None = None
    over: bool = False


class Prune:
    """The duty that prunes. `rows_per_s` bounds what all schedulers together remove."""

    name = "prune"

    def __init__(self, database: Database, settings: RetentionSettings, *, rows_per_s: int = ROWS_PER_S) -> None:
        self._database = database
        self._days = settings
        self._rows_per_s = rows_per_s
        self._pause_s = 0.0
        self._tenant: int | None = None

    async def idle(self) -> None:
        """Until the pace allows the next batch, or the next tenant's time comes."""
        await asyncio.sleep(self._pause_s)

    async def run_once(self) -> Mapping[str, int]:
        """One batch of the tenant whose turn it is. Raises Unavailable."""
        self._tenant = None
        try:
            return await self._batch()
        except Unavailable:
            raise
        except Exception:
            if self._tenant is None:
                raise
            # One tenant must not stop the retention of the others.
            log.exception("pruning failed; the tenant is passed over until tomorrow", extra={"tenant": self._tenant})
            async with self._database.connection() as connection:
                await pass_over(connection, self._tenant)
            return {"failed": 1}

    async def _batch(self) -> Mapping[str, int]:
        async with self._database.transaction() as connection:
            turn = await take_turn(connection)
            if not isinstance(turn, Turn):
                self._pause_s = _ELSEWHERE_S if turn is None else min(turn / 1_000, _LONGEST_PAUSE_S)
                return {}
            self._tenant = turn.tenant
            done = await self._prune(connection, turn)
            await _advance(connection, turn, done)
            pause_ms = done.weight * 1_000 // self._rows_per_s
            await set_pace(connection, pause_ms)
        self._pause_s = pause_ms / 1_000
        return {turn.stage: done.removed}

    async def _prune(self, connection: asyncpg.Connection, turn: Turn) -> _Done:
        if turn.stage == "runs":
            return await _prune_runs(connection, turn, turn.now - timedelta(days=self._days.run_days))
        if turn.stage == "events":
            return await _prune_events(connection, turn, turn.now - timedelta(days=self._days.event_days))
        if turn.stage == "usage":
            first_day = (turn.now - timedelta(days=self._days.usage_days)).astimezone(UTC)
            count = await delete_usage(connection, turn.tenant, first_day, BATCH)
        else:
            count = await delete_jobs(connection, turn.tenant, turn.now - timedelta(days=self._days.run_days), BATCH)
        return _Done(count, count, over=count < BATCH)


async def _prune_runs(connection: asyncpg.Connection, turn: Turn, before: datetime) -> _Done:
    found = await old_runs(connection, turn, before, limit=BATCH, weight=WEIGHT)
    if not found:
        return _Done(over=True)
    removed = await delete_runs(connection, turn.tenant, [row["run"] for row in found], before)
    weight = sum(row["weight"] for row in found)
    return _Done(removed, weight, found[-1]["ended"], found[-1]["run"])


async def _prune_events(connection: asyncpg.Connection, turn: Turn, before: datetime) -> _Done:
    found = await old_events(connection, turn, before, limit=BATCH, weight=WEIGHT)
    if not found:
        return _Done(over=True)
    removed = await delete_events(connection, turn.tenant, [row["id"] for row in found if row["is_old"]], before)
    return _Done(removed, sum(row["weight"] for row in found), None, found[-1]["id"])


async def _advance(connection: asyncpg.Connection, turn: Turn, done: _Done) -> None:
    if not done.over:
        await go_on(connection, turn.tenant, turn.stage, done.after_at, done.after_id)
    elif turn.stage != _STAGES[-1]:
        await go_on(connection, turn.tenant, _STAGES[_STAGES.index(turn.stage) + 1], None, None)
    else:
        await pass_over(connection, turn.tenant)
