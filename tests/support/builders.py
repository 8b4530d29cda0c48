"""What an executor commits, put together by hand: items of the commit pipeline and their rows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from services.core.store.commit_item import CommitItem, EndRow, StepRow
from services.core.store.database import Database
from services.core.store.pipeline import Pipeline


def step_row(live: Mapping[str, Any], sid: str, seq: int = 0, **values: Any) -> StepRow:
    """A completed `step.run` of the run of this live row."""
    row: dict[str, Any] = {
        "run": live["id"],
        "tenant": live["tenant"],
        "sid": sid,
        "seq": seq,
        "name": sid,
        "kind": "r",
        "status": "c",
        "output": f'"{sid}"',
        "error": None,
        "input": None,
        "att": 1,
        "ms": 0,
    }
    return StepRow(**{**row, **values})


def item(live: Mapping[str, Any], *sids: str, **values: Any) -> CommitItem:
    """What the holder of this live row commits: these steps, keeping the lease unless said otherwise."""
    rows = tuple(step_row(live, sid, live["steps"] + place) for place, sid in enumerate(sids))
    fields: dict[str, Any] = {
        "run": live["id"],
        "tenant": live["tenant"],
        "epoch": live["epoch"],
        "rev": live["rev"],
        "mail": live["mail"],
        "keep": True,
        "st": "r",
        "steps": len(rows),
        "size": sum(len(row.output or "") for row in rows),
        "step_rows": rows,
    }
    return CommitItem(**{**fields, **values})


def ending(live: Mapping[str, Any], *sids: str, status: str = "completed", **values: Any) -> CommitItem:
    """The end of the run, after these steps."""
    return item(live, *sids, keep=False, st=status[0], end_row=EndRow(live["id"], status, "null", None), **values)


@contextlib.asynccontextmanager
async def serving(database: Database, owner: int, **options: Any) -> AsyncIterator[Pipeline]:
    """A pipeline that commits for `owner`."""
    pipeline = Pipeline(database.dsn, owner=owner, **options)
    task = asyncio.create_task(pipeline.run())
    try:
        yield pipeline
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
