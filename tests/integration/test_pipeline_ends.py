"""An end that is committed by itself comes to the same as one in a batch, whatever else the store knows of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from services.core.store.commit_item import CommitItem, EndRow
from services.core.store.pipeline import Pipeline
from services.core.store.queries import queries
from tests.support.builders import item
from tests.support.engine import database, postgres_url
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.pipeline import Live, held, owner, pipeline, read
from tests.support.waiting import until

__all__ = ["database", "owner", "pipeline", "postgres_url", "rows"]

Scene = Callable[[LiveRows, Live], Awaitable[None]]


def end(live: Live, status: str = "completed", **values: Any) -> CommitItem:
    output, error = ("1", None) if status == "completed" else (None, '{"name":"E","message":"m"}')
    row = EndRow(live["id"], status, output, error)
    return item(live, keep=False, st=status[0], end_row=row, **{"steps": 2, "size": 7, "uses": 3, **values})


async def nothing(rows: LiveRows, live: Live) -> None:
    """Nobody waits for it, and nothing is open."""


async def has_used_nothing(rows: LiveRows, live: Live) -> None:
    await rows.value("update rt.live set uses = -3 where id = $1 returning 1", live["id"])


async def is_waited_for(rows: LiveRows, live: Live) -> None:
    await rows.rest("w", [rows.wait("c", sid="c", child=live["id"])])


async def has_open_waits(rows: LiveRows, live: Live) -> None:
    waits = [rows.wait(kind, run=live["id"], sid=kind, delay_ms=DAY_MS) for kind in "xe"]
    async with rows.database.connection() as connection:
        await connection.execute(queries("engine")["open_waits"], *map(list, zip(*waits, strict=True)))


async def is_listened_for(rows: LiveRows, live: Live) -> None:
    hears = "update rt.defs_version set hears = '{completed,failed}' where tenant = $1 returning 1"
    assert await rows.value(hears, rows.tenant)


async def is_waited_for_by_its_event(rows: LiveRows, live: Live) -> None:
    waits = []
    for status in ("completed", "failed"):
        name_h = await rows.value("select rt.run_event_hash($1)", status)
        waits.append(rows.wait("e", sid=status, event=f"runr/run.{status}", name_h=name_h, path_h=0, val_h=1))
    await rows.rest("w", waits)


SCENES = (nothing, has_used_nothing, is_waited_for, has_open_waits, is_listened_for, is_waited_for_by_its_event)


async def left(rows: LiveRows, live: Live) -> Mapping[str, object]:
    """All that the store knows after the end, but for what is another one in each run."""
    of = {
        "live": "select 1 from rt.live where id = $1",
        "wait": "select 1 from rt.wait where run = $1",
        "ends": "select to_jsonb(e) - '{run,started,ended}'::text[] from rt.ends e where run = $1",
        "steps": "select sid, kind::text, status::text from rt.steps where run = $1 order by sid",
        "mark": "select kind, split_part(body, '/', 1) = any ('{completed,failed}') from rt.mark "
        "where $1 in (target::text, body) order by 1, 2",
    }
    marks = of.pop("mark")
    found = {table: [tuple(row) for row in await rows.rows(query, live["id"])] for table, query in of.items()}
    found["mark"] = [tuple(row) for row in await rows.rows(marks, str(live["id"]))]
    return found


async def used(rows: LiveRows) -> int:
    return int(await rows.value("select coalesce(sum(n), 0) from rt.usage_delta where kind = 's'"))


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("scene", SCENES)
async def test_it_comes_to_the_same_by_itself_and_in_a_batch(
    rows: LiveRows, owner: int, pipeline: Pipeline, scene: Scene, status: str
) -> None:
    alone, batched, beside = [await held(rows, owner) for _ in range(3)]
    for live in (alone, batched):
        await scene(rows, live)
    began = await used(rows)
    done = await pipeline.commit(end(alone, status))
    between = await used(rows)
    (same, _) = await asyncio.gather(pipeline.commit(end(batched, status)), pipeline.commit(item(beside, "a", uses=0)))
    assert done == same
    assert await left(rows, alone) == await left(rows, batched)
    assert between - began == await used(rows) - between
    times = await rows.row("select started, ended, rt.now() as now from rt.ends where run = $1", alone["id"])
    assert times is not None
    assert times["started"] <= times["ended"] <= times["now"]


async def test_its_holder_is_told_of_a_delivery_that_it_has_not_seen(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live = await held(rows, owner)
    await rows.value("update rt.live set mail = mail + 1 where id = $1 returning 1", live["id"])
    assert (await pipeline.commit(end(live))).mail == live["mail"] + 1


async def test_a_wait_for_the_run_that_is_being_stored_hears_of_its_end(
    rows: LiveRows, owner: int, pipeline: Pipeline
) -> None:
    live, waits = await held(rows, owner), await rows.rest("w")
    async with rows.database.transaction() as connection:
        await connection.fetch("select from rt.live where id = $1 for share", live["id"])
        wait = rows.wait("c", run=waits, sid="c", child=live["id"])
        await connection.execute(queries("engine")["open_waits"], *([value] for value in wait))
        ending = asyncio.create_task(pipeline.commit(end(live)))
        await until(lambda: _has_asked(rows))
        assert await read(rows, live["id"])
    await ending
    marks = await rows.rows("select target, body from rt.mark where kind = 'child_end'")
    assert [(row["target"], row["body"]) for row in marks] == [(waits, str(live["id"]))]


async def _has_asked(rows: LiveRows) -> bool:
    """Whether the pipeline has sent its commit, and was told that the row is another's."""
    return bool(
        await rows.value(
            "select count(*) from pg_stat_activity where application_name = 'runr-executor-pipeline'"
            " and state = 'idle' and query like '%commit_steps_v1%' and datname = current_database()"
        )
    )
