"""Ticks of cron triggers become runs: through the same door as every other start (engine section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from services.core.domain.matching import event_value
from services.core.domain.tick import CRON_EVENT, tick_data
from services.core.engine.definitions import WorkflowEntry
from services.core.engine.gates import NO_PAIR, Gates, Pair
from services.core.engine.hints import Hints
from services.core.engine.retrying import after_commit
from services.core.engine.run_spans import RunSpans
from services.core.engine.run_traces import RunTraces
from services.core.engine.schedules import unix_ms
from services.core.engine.starts import cancel_waits, insert_starts, start_row
from services.core.runtime.ids import ulid_text
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.schedules import FireRow, ScheduleRow, record_fires, redirect_fires


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A tick that is to start a run of `entry`, under ids that were made for it."""

    schedule: ScheduleRow
    entry: WorkflowEntry
    at: datetime
    run: UUID
    event: UUID

    @property
    def fire(self) -> FireRow:
        """The tick as it is recorded."""
        assert self.schedule.id is not None, "a stored trigger has an id"
        return FireRow(self.schedule.id, self.at, self.run)


@dataclass(frozen=True, slots=True)
class TickStart:
    """The run that a tick led to, and whether it is new; `gates` are those before which a new run stands.

    `trace` is the place of a new run in its trace, `begun_ns` when its start began (unix nanoseconds).
    """

    tick: Tick
    run: UUID
    is_new: bool
    gates: Pair
    trace: str | None
    begun_ns: int


async def start_ticks(
    connection: asyncpg.Connection,
    ticks: Sequence[Tick],
    spans: RunSpans,
    *,
    record: bool = True,
    trace: str | None = None,
) -> list[TickStart]:
    """Start the runs of ticks in the caller's transaction, all in one call; of a tick that has fired before, none.

    `record` False: a start by hand, which is no tick of the trigger and suppresses none.
    """
    begun_ns = spans.now_ns()
    if record and ticks:
        fresh = await record_fires(connection, [tick.fire for tick in ticks])
        ticks = [tick for tick in ticks if tick.run in fresh]
    starts: list[StartRow] = []
    waits: list[WaitRow] = []
    for tick in ticks:
        start, cancels = _rows(tick, spans.place(trace))
        starts.append(start)
        waits += cancels
    found = [
        TickStart(tick, run, is_new, (start.ga, start.gb), start.trace, begun_ns)
        for tick, start, (run, is_new) in zip(
            ticks, starts, await insert_starts(connection, starts, waits), strict=True
        )
    ]
    elsewhere = [each.tick.fire._replace(run=each.run) for each in found if each.run != each.tick.run]
    if record and elsewhere:
        await redirect_fires(connection, elsewhere)
    return found


async def tell(
    started: Sequence[TickStart], hints: Hints, gates: Gates, traces: RunTraces, trace: str | None = None
) -> None:
    """What follows the commit: hints, a look at the gates before which new runs stand, what is counted, and spans."""
    fresh = [each for each in started if each.is_new]
    hints.ready([each.run for each in fresh if each.gates == NO_PAIR], traceparent=trace)
    await after_commit(gates.grant(each.gates for each in fresh))
    traces.meter.started("cron", len(fresh))
    for each in fresh:
        traces.spans.started(each.run, each.tick.entry.name, trace=each.trace, parent=trace, begun_ns=each.begun_ns)


def _rows(tick: Tick, trace: str | None) -> tuple[StartRow, list[WaitRow]]:
    schedule = tick.schedule
    data = tick_data(cron=schedule.cron, timezone=schedule.timezone, scheduled_at=tick.at, trigger=schedule.place)
    ts = unix_ms(tick.at)
    trigger = event_value(id=ulid_text(tick.event), name=CRON_EVENT, data=data, ts=ts)
    start = start_row(
        tick.entry,
        run=tick.run,
        source="cron",
        event=tick.event,
        event_name=CRON_EVENT,
        event_ts=ts,
        event_data=data,
        trigger=trigger,
        trace=trace,
    )
    return start, cancel_waits(tick.entry, tick.run, trigger)
