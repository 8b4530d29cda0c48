"""Time that passes for one run of the real engine: its hours of sleep are over as soon as a test wants it."""

from __future__ import annotations

import asyncpg

from services.core.runtime.ids import ulid_uuid
from tests.support.rest import Json, Rest

_HELD = "select from rt.live where id = $1 for update"
_NEXT = """
select id, greatest(due_at - rt.now(), interval '0') as ahead from rt.wait
where run = $1 and kind in ('s', 'e', 'b', 'd') and due_at is not null and not arming order by due_at limit 1
"""
_OLDER = """
update rt.wait set due_at = due_at - $2::interval, created_at = created_at - $2::interval, since = since - $2::interval
where run = $1
"""
_NEARER_ITS_END = "update rt.live set deadline = deadline - $2::interval where id = $1"
_IS_THERE = "select exists (select from rt.wait where id = $1)"


async def time_passes(rest: Rest, run: str) -> None:
    """The time until the next timer of a run (of a sleep, wait, backoff or later start) has passed, and it has fired.

    What the run is in began so much earlier, and its own end is so much nearer. The rest is up to the engine: it finds
    the timer due by the clock of the database, as it would have then. A run without a timer is left alone.
    """
    id = ulid_uuid(run)
    connection = await asyncpg.connect(rest.database_url)
    try:
        async with connection.transaction():
            await connection.execute(_HELD, id)
            timer = await connection.fetchrow(_NEXT, id)
            if timer is None:
                return
            await connection.execute(_OLDER, id, timer["ahead"])
            await connection.execute(_NEARER_ITS_END, id, timer["ahead"])
        await rest.until(lambda: connection.fetchval(_IS_THERE, timer["id"]), lambda is_there: not is_there)
    finally:
        await connection.close()


async def resting(rest: Rest, run: str) -> Json:
    """The run once it has ended, or only time or an event makes it go on."""
    return await rest.becomes(run, lambda found: found["ended_at"] or found["due_at"] or waits_of(found))


async def ends_in_time(rest: Rest, run: str) -> Json:
    """The run once it has ended, however long it sleeps, waits for events that do not come, and backs off."""
    while (found := await resting(rest, run))["ended_at"] is None:
        await time_passes(rest, run)
    return found


async def waits_in_time(rest: Rest, run: str) -> Json:
    """The run once it waits for an event, however long it sleeps before."""
    while not waits_of(found := await resting(rest, run)):
        assert found["ended_at"] is None, found
        await time_passes(rest, run)
    return found


async def time_is_up(rest: Rest, run: str) -> Json:
    """The run, ended by its own timeout, which is over now."""
    connection = await asyncpg.connect(rest.database_url)
    try:
        await connection.execute("update rt.live set deadline = rt.now() where id = $1", ulid_uuid(run))
    finally:
        await connection.close()
    return await rest.becomes(run, "timed_out")


def waits_of(run: Json) -> list[Json]:
    """The steps in which a run waits for an event."""
    return [step for step in run["steps"] if (step["kind"], step["status"]) == ("wait_for_event", "waiting")]
