"""Runs and events as if they were old, and a pass of the duty that prunes them."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from services.core.domain.op import RunCompleted, StepCompleted
from services.core.runtime.settings import RetentionSettings
from services.core.store.database import Database
from services.scheduler.duties.prune import Prune
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows

DAYS = RetentionSettings(run_days=30, event_days=7, usage_days=400)
A_STEP = StepCompleted(id="a", name="a", output="1")
THE_END = RunCompleted(output="2")
TABLES = ("runs", "ends", "steps", "attempts")


def new_prune(database: Database, rows_per_s: int = 1_000_000_000) -> Prune:
    return Prune(database, DAYS, rows_per_s=rows_per_s)


async def whole_pass(rows: LiveRows, prune: Prune | None = None) -> Counter[str]:
    """The tenant's next pass, from its time on to its end, and what it removed."""
    prune = prune or new_prune(rows.database)
    await prune.run_once()  # a new tenant gets its time
    await rows.value("update rt.prune set next_at = rt.now() - interval '1 s'")
    removed: Counter[str] = Counter()
    for _ in range(1_000):
        removed.update(await prune.run_once())
        if await rows.value("select stage = 'runs' and next_at > rt.now() from rt.prune"):
            return removed
    raise AssertionError("the pass does not end")


async def age_ends(rows: LiveRows, days: float) -> None:
    await rows.value("update rt.ends set ended = ended - $1::float8 * interval '1 day'", days)


async def age_events(rows: LiveRows, days: float) -> None:
    """Events and their ids as if they had come earlier: ids are of the time of their making."""
    shift = round(days * 86_400_000)
    aged = (
        "create function pg_temp.aged(id uuid, ms bigint) returns uuid language sql as $$ select "
        "(lpad(to_hex(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint - ms), 12, '0')"
        " || right(replace(id::text, '-', ''), 20))::uuid $$"
    )
    async with rows.database.transaction() as connection:
        await connection.execute(aged)
        await connection.execute("update rt.runs set event = pg_temp.aged(event, $1)", shift)
        await connection.execute("update rt.event_ids set event = pg_temp.aged(event, $1)", shift)
        await connection.execute(
            "update rt.events set id = pg_temp.aged(id, $1), received_at = received_at - $1 * interval '1 ms'", shift
        )
        await connection.execute("drop function pg_temp.aged")


async def ended(hand: Hand, **start: Any) -> UUID:
    """A run with a step, a failed attempt and an end."""
    run = await hand.start("work", **start)
    await hand.fail(run)
    await hand.fire(run)
    await hand.answer(run, A_STEP)
    await hand.answer(run, THE_END)
    return run


async def counts(rows: LiveRows, run: UUID) -> dict[str, int]:
    found = {}
    for table in TABLES:
        key = "id" if table == "runs" else "run"
        found[table] = await rows.value(f"select count(*) from rt.{table} where {key} = $1", run)
    return found
