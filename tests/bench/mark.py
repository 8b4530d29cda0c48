"""Telling the runs that a workload starts from those that were there before.

Run ids are stamped by estimates of the database's clock, which may be behind it: ids alone do not tell. So what is
there is counted once, and no clock decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import asyncpg

# More than any estimate of the database's clock is behind it. It only bounds how much is counted again.
_BEHIND_MS = 2_000

_MARK = """
with lowest as (
    select rpad(lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint - $1), 12, '0'), 32, '0')::uuid as id
), running as (
    select coalesce(array_agg(live.id), '{}') as ids from rt.live, lowest where live.id > lowest.id
)
select lowest.id as lowest, running.ids as running,
       (select count(*) from rt.ends
        where run > lowest.id and status = 'completed' and run <> all(running.ids)) as ended,
       (select count(*) from rt.steps where run > lowest.id and run <> all(running.ids)) as steps
from lowest, running
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """What was there: runs above `lowest` that had `ended` with their `steps`, and those that were `running`."""

    lowest: UUID
    running: tuple[UUID, ...]
    ended: int
    steps: int


async def mark_now(database: asyncpg.Connection) -> Mark:
    """A mark after everything that is committed now."""
    found = await database.fetchrow(_MARK, _BEHIND_MS)
    return Mark(found["lowest"], tuple(found["running"]), found["ended"], found["steps"])


async def ended_since(database: asyncpg.Connection, mark: Mark) -> int:
    """How many of the runs created after a mark have completed."""
    found: int = await database.fetchval(
        "select count(*) from rt.ends where run > $1 and status = 'completed' and run <> all($2::uuid[])",
        mark.lowest,
        mark.running,
    )
    return found - mark.ended


async def steps_since(database: asyncpg.Connection, mark: Mark) -> int:
    """How many steps of the runs created after a mark are committed."""
    found: int = await database.fetchval(
        "select count(*) from rt.steps where run > $1 and run <> all($2::uuid[])", mark.lowest, mark.running
    )
    return found - mark.steps
