"""What an executor holds and commits, put together by hand: leases, items of the commit pipeline and their rows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

from services.core.domain.definition import Definition
from services.core.domain.envelope import EventInfo
from services.core.engine.definitions import ProjectEntry, TenantDefinitions, WorkflowEntry
from services.core.store.commit_item import CommitItem, EndRow, StepRow
from services.core.store.database import Database
from services.core.store.pipeline import Pipeline
from services.executor.lease import Lease


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


def workflow(name: str = "work", id: int = 1, **options: Any) -> WorkflowEntry:
    """A declared workflow; `options` are fields of its definition."""
    definition = Definition(name=name, **options)
    return WorkflowEntry(
        id=id, tenant=1, project=1, name=name, definition=definition, is_active=True, archived=False, version="v1"
    )


def lease(*workflows: WorkflowEntry, **values: Any) -> Lease:
    """A held run of the first of these workflows."""
    entries = workflows or (workflow(),)
    project = ProjectEntry(
        id=1, tenant=1, slug="p", endpoint_url=None, keys=(), trigger_type="workflow", queue_stream=None
    )
    definitions = TenantDefinitions(
        tenant=1,
        version=1,
        projects={1: project},
        workflows={entry.id: entry for entry in entries},
        by_name={(1, entry.name): entry for entry in entries},
        by_event={},
        project_by_slug={"p": project},
    )
    fields: dict[str, Any] = {
        "run": UUID(int=1_760_000_000_000 << 80 | 1),
        "tenant": 1,
        "epoch": 3,
        "rev": 5,
        "mail": 2,
        "definitions": definitions,
        "entry": entries[0],
        "project": project,
        "source": "event",
        "event": EventInfo(id="01J", name="order.created", data='{"order_id":"o-1"}', ts=7),
        "test": False,
        "parent": None,
        "trace": None,
        "started_ms": 1_760_000_000_500,
        "reached_ms": 1_760_000_000_700,
        "max_attempts": 4,
    }
    return Lease(**{**fields, **values})
